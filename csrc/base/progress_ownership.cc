#include "base/progress_ownership.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cassert>
#include <utility>

#include "base/error.h"

namespace fairring {

ProgressOwnership::ProgressOwnership(Alarm alarm)
    : alarm_(alarm == Alarm::Rings ? ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1) {
  if (alarm == Alarm::Rings && !alarm_) throw Failure(systemError("eventfd"));
}

bool ProgressOwnership::take() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(held_, true)) return false;
  holder_.store(std::this_thread::get_id());
  return true;
}

bool ProgressOwnership::takeOver() {
  std::unique_lock lock(mutex_);
  ++wanting_;
  given_.wait(lock, [this] { return !held_ || !inBackground_ || isMine(); });
  --wanting_;
  if (std::exchange(held_, true)) return false;
  holder_.store(std::this_thread::get_id());
  return true;
}

bool ProgressOwnership::takeInBackground() {
  const std::lock_guard lock(mutex_);
  if (held_ || wanting_ > 0 || (!urgent_ && isInRow())) return false;
  held_ = inBackground_ = true;
  holder_.store(std::this_thread::get_id());
  return true;
}

void ProgressOwnership::give(const Rest& rest) {
  assert(isMine());
  const std::lock_guard lock(mutex_);
  held_ = inBackground_ = false;
  holder_.store(std::thread::id{});
  if (rest.served) {
    const auto now = Clock::now();
    if (now - std::exchange(servedAt_, now) < kRow) inRowAt_ = now;
  }
  if (wanting_ > 0) given_.notify_all();
  const bool due = rest.due || !posted_.empty();
  urgent_ = urgent_ || due;
  if (parked_ && (due || (rest.pending && !parkedInRow_))) {
    parked_ = false;
    called_.notify_one();
  } else if (aside_ && (due || rest.next < asideUntil_)) {
    ring();
  }
}

void ProgressOwnership::post(Task task) {
  const std::lock_guard lock(mutex_);
  call(std::move(task));
}

bool ProgressOwnership::postAndTake(Task task) {
  const std::lock_guard lock(mutex_);
  return takeWithTask(std::move(task));
}

bool ProgressOwnership::postInRow(Task task) {
  const std::lock_guard lock(mutex_);
  if (held_ || !isInRow(kRow / 2)) return takeWithTask(std::move(task));
  posted_.push_back(std::move(task));
  // If the progress thread does not poll by itself every kParkInRow, it parks for that long once it is up.
  if (parked_ && !parkedInRow_) {
    parked_ = false;
    called_.notify_one();
  } else if (aside_) {
    ring();
  }
  return false;
}

bool ProgressOwnership::takeWithTask(Task task) {
  if (held_) {
    call(std::move(task));
    return false;
  }
  posted_.push_back(std::move(task));
  held_ = true;
  holder_.store(std::this_thread::get_id());
  return true;
}

void ProgressOwnership::call(Task task) {
  posted_.push_back(std::move(task));
  urgent_ = true;
  if (held_) {
    if (std::exchange(asleep_, false)) ring();  // an awake owner looks before it gives ownership up
  } else if (parked_) {
    parked_ = false;
    called_.notify_one();
  } else if (aside_) {
    ring();  // though it may ring already: a caller could have quieted it before the progress thread was up
  }
}

std::vector<ProgressOwnership::Task> ProgressOwnership::takePosted() {
  assert(isMine());
  const std::lock_guard lock(mutex_);
  urgent_ = false;
  return std::exchange(posted_, {});
}

void ProgressOwnership::ring() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(alarm_.get(), &one, sizeof one);  // full means it is ringing already
}

void ProgressOwnership::quietAlarm() {
  std::uint64_t rung = 0;
  [[maybe_unused]] const auto got = ::read(alarm_.get(), &rung, sizeof rung);
}

bool ProgressOwnership::fallAsleep() {
  assert(isMine());
  const std::lock_guard lock(mutex_);
  asleep_ = posted_.empty();
  return asleep_;
}

void ProgressOwnership::awake() {
  const std::lock_guard lock(mutex_);
  asleep_ = false;
}

bool ProgressOwnership::stepAside(Clock::time_point next) {
  assert(isMine());
  const std::lock_guard lock(mutex_);
  if (!posted_.empty()) return false;
  aside_ = true;
  asideUntil_ = next;
  held_ = inBackground_ = false;
  holder_.store(std::thread::id{});
  if (wanting_ > 0) given_.notify_all();
  return true;
}

void ProgressOwnership::comeBack() {
  const std::lock_guard lock(mutex_);
  aside_ = false;
}

void ProgressOwnership::park() {
  std::unique_lock lock(mutex_);
  parkedInRow_ = isInRow();
  if (!held_ && wanting_ == 0 && (urgent_ || !parkedInRow_)) return;
  parked_ = true;
  const std::chrono::microseconds most = parkedInRow_ ? kParkInRow : kPark;
  called_.wait_for(lock, most, [this] { return !parked_; });
  parked_ = false;
}

}  // namespace fairring
