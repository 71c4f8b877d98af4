#include "transport/lockable_memory.h"

#include <linux/capability.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>

#include "base/error.h"

namespace fairring {

namespace {

// By groups that exist, for one.
std::uint64_t lockedBytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word != "VmPin:") continue;
    std::uint64_t kibibytes = 0;
    status >> kibibytes;
    return kibibytes << 10;
  }
  return 0;
}

std::optional<std::uint64_t> unlockedBytes() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> capabilities{};
  const bool mayLockAll = ::syscall(SYS_capget, &header, capabilities.data()) == 0 &&
                          (capabilities[0].effective & (1U << CAP_IPC_LOCK)) != 0;
  rlimit limit{};
  if (mayLockAll || ::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur - std::min<std::uint64_t>(limit.rlim_cur, lockedBytes());
}

}  // namespace

// Never ends: groups may end at exit, later than what is static here.
LockableMemory& LockableMemory::ofThisProcess() {
  static LockableMemory* const memory = madeForForks();
  return *memory;
}

LockableMemory* LockableMemory::madeForForks() {
  auto memory = std::make_unique<LockableMemory>(unlockedBytes);
  const int error = ::pthread_atfork([] { ofThisProcess().mutex_.lock(); }, [] { ofThisProcess().mutex_.unlock(); },
                                     [] {
                                       LockableMemory& inherited = ofThisProcess();
                                       inherited.promised_ = 0;
                                       ++inherited.epoch_;
                                       inherited.mutex_.unlock();
                                     });
  check(error == 0, ErrorKind::System, "pthread_atfork: no memory");
  return memory.release();
}

LockableMemory::Promise& LockableMemory::Promise::operator=(Promise&& other) noexcept {
  giveBack();
  memory_ = std::exchange(other.memory_, nullptr);
  bytes_ = other.bytes_;
  epoch_ = other.epoch_;
  return *this;
}

void LockableMemory::Promise::giveBack() noexcept {
  LockableMemory* const memory = std::exchange(memory_, nullptr);
  if (memory == nullptr) return;
  const std::lock_guard lock(memory->mutex_);
  if (epoch_ != memory->epoch_) return;
  memory->promised_ -= bytes_;
  ++memory->givenBack_;
}

// The system is asked without the mutex, for which fork() would wait. Its answer is of no use if a promise has been
// given back meanwhile: those bytes may have been locked since, and would be counted neither way.
LockableMemory::Weighed LockableMemory::weigh() const {
  std::unique_lock lock(mutex_);
  for (;;) {
    const std::uint64_t givenBack = givenBack_;
    lock.unlock();
    Left left{unlocked_(), 0};
    lock.lock();
    if (givenBack != givenBack_) continue;
    left.promised = promised_;
    if (left.bytes) *left.bytes -= std::min(*left.bytes, promised_);
    return {std::move(lock), left};
  }
}

LockableMemory::Left LockableMemory::left() const { return weigh().left; }

LockableMemory::Promise LockableMemory::promise(std::uint64_t bytes, const std::string& use) {
  const Weighed weighed = weigh();
  const std::string why = obstacle(weighed.left, bytes, use);
  check(why.empty(), ErrorKind::Configuration, why);
  promised_ += bytes;
  return {*this, bytes, epoch_};
}

std::string LockableMemory::obstacle(const Left& left, std::uint64_t bytes, const std::string& use) {
  if (!left.bytes || *left.bytes >= bytes) return {};
  const std::string promised =
      left.promised == 0 ? "" : concat(" beside ", left.promised, " B that are promised to its other groups");
  return concat("this process may lock ", *left.bytes, " B of memory", promised, ", and ", use, " wants up to ", bytes,
                " B; set ulimit -l unlimited, or give the container CAP_IPC_LOCK");
}

}  // namespace fairring
