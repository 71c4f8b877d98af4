#include "base/descriptor.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace fairring {
namespace {

// The descriptors that this process owns. Its mutex is the last in the order of locks, and fork() takes it too: the
// child finds the table whole and the mutex free.
class Owned {
 public:
  Owned() {
    ::pthread_atfork([] { table().mutex_.lock(); }, [] { table().mutex_.unlock(); }, [] { table().closeAll(); });
  }

  // Never destroyed: descriptors may end after static objects do.
  static Owned& table() {
    static auto* const owned = new Owned;
    return *owned;
  }

  void add(int fd) {
    const std::lock_guard lock(mutex_);
    const auto index = static_cast<std::size_t>(fd);
    if (index >= open_.size()) open_.resize(std::max(index + 1, 2 * open_.size()));
    open_[index] = 1;
  }

  void close(int fd) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(open_[static_cast<std::size_t>(fd)], char{0}) != 0) ::close(fd);
  }

 private:
  void closeAll() {  // in the child, which has only this thread; nothing here allocates
    for (std::size_t fd = 0; fd < open_.size(); ++fd) {
      if (std::exchange(open_[fd], char{0}) != 0) ::close(static_cast<int>(fd));
    }
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::vector<char> open_;  // by number
};

// Made when the program is loaded: its fork handler is the oldest, so fork() takes its mutex last.
// NOLINTNEXTLINE(bugprone-throwing-static-initialization): without memory for this the program would not start anyway
[[maybe_unused]] const Owned& atLoad = Owned::table();

}  // namespace

Descriptor::Descriptor(int fd) : fd_(fd) {
  if (fd_ >= 0) Owned::table().add(fd_);
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) Owned::table().close(fd_);
}

}  // namespace fairring
