#include "base/role.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cassert>
#include <utility>

#include "base/error.h"

namespace fairring {

Role::Role() : alarm_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!alarm_) throw Failure(systemError("eventfd"));
}

bool Role::take() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(held_, true)) return false;
  holder_.store(std::this_thread::get_id());
  return true;
}

void Role::give(const Rest& rest) {
  assert(isMine());
  const std::lock_guard lock(mutex_);
  held_ = false;
  holder_.store(std::thread::id{});
  const bool due = rest.due || !posted_.empty();
  if (parked_ && (due || rest.awaited)) {
    parked_ = false;
    called_.notify_one();
  } else if (aside_ && (due || rest.next < asideUntil_)) {
    ring();
  }
}

void Role::post(Task task) {
  const std::lock_guard lock(mutex_);
  posted_.push_back(std::move(task));
  if (held_) {
    if (std::exchange(asleep_, false)) ring();  // one that is awake looks before it gives the role up
  } else if (parked_) {
    parked_ = false;
    called_.notify_one();
  } else if (aside_) {
    ring();  // though it may ring already: a caller could have quieted it before the stand-in was up
  }
}

std::vector<Role::Task> Role::takePosted() {
  assert(isMine());
  const std::lock_guard lock(mutex_);
  return std::exchange(posted_, {});
}

void Role::ring() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(alarm_.get(), &one, sizeof one);  // full means it is ringing already
}

void Role::quietAlarm() {
  std::uint64_t rung = 0;
  [[maybe_unused]] const auto got = ::read(alarm_.get(), &rung, sizeof rung);
}

bool Role::fallAsleep() {
  assert(isMine());
  const std::lock_guard lock(mutex_);
  asleep_ = posted_.empty();
  return asleep_;
}

void Role::awake() {
  const std::lock_guard lock(mutex_);
  asleep_ = false;
}

bool Role::stepAside(Clock::time_point next) {
  assert(isMine());
  const std::lock_guard lock(mutex_);
  if (!posted_.empty()) return false;
  aside_ = true;
  asideUntil_ = next;
  held_ = false;
  holder_.store(std::thread::id{});
  return true;
}

void Role::comeBack() {
  const std::lock_guard lock(mutex_);
  aside_ = false;
}

void Role::park() {
  std::unique_lock lock(mutex_);
  if (!held_) return;
  parked_ = true;
  called_.wait_for(lock, kPark, [this] { return !parked_; });
  parked_ = false;
}

}  // namespace fairring
