#include "nccl_shared.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

#include "report.h"

namespace emulated {
namespace {

constexpr long kLongestSleepNanoseconds = 5'000'000;  // isOver() is looked at that often

std::size_t pages(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

}  // namespace

SharedState::SharedState(const std::string& name, int rank, int ranks) : name_("/" + name), rank_(rank), ranks_(ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  bytes_ = pages(sizeof(Head)) + count * kPartBytes + count * count * sizeof(Letter);
  const int file = shm_open(name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes_)) != 0) fatal("NCCL: no shared memory %s", name_.c_str());
  void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (at == MAP_FAILED) fatal("NCCL: %zu bytes of shared memory can't be mapped", bytes_);
  head_ = static_cast<Head*>(at);
  head_->joined.fetch_add(1);
  notify();
}

SharedState::~SharedState() { munmap(head_, bytes_); }

void SharedState::remove() const { shm_unlink(name_.c_str()); }

void SharedState::notify() {
  head_->changes.fetch_add(1);
  syscall(SYS_futex, &head_->changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool SharedState::await(const std::function<bool()>& until, const std::function<bool()>& isOver) {
  const timespec longest{.tv_sec = 0, .tv_nsec = kLongestSleepNanoseconds};
  while (true) {
    const std::uint32_t seen = head_->changes.load();
    if (until()) return true;
    if (isOver()) return false;
    syscall(SYS_futex, &head_->changes, FUTEX_WAIT, seen, &longest, nullptr, 0);
  }
}

bool SharedState::meet(std::atomic<std::uint64_t>* steps, const std::function<bool()>& isOver) {
  const std::uint64_t step = steps[rank_].fetch_add(1) + 1;
  notify();
  const auto allHaveCome = [this, steps, step] {
    for (int rank = 0; rank < ranks_; ++rank) {
      if (steps[rank].load() < step) return false;
    }
    return true;
  };
  return await(allHaveCome, isOver);
}

std::byte* SharedState::part(int rank) const {
  return reinterpret_cast<std::byte*>(head_) + pages(sizeof(Head)) + static_cast<std::size_t>(rank) * kPartBytes;
}

Letter& SharedState::letter(int from, int to) const {
  auto* letters = reinterpret_cast<Letter*>(part(ranks_));
  return letters[from * ranks_ + to];
}

}  // namespace emulated
