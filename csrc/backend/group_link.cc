#include "backend/group_link.h"

#include <utility>

namespace fairring {

void GroupLink::connect(Membership& membership) {
  const std::lock_guard lock(mutex_);
  membership_ = &membership;
}

void GroupLink::close() {
  const std::lock_guard lock(mutex_);
  membership_ = nullptr;
  changed_.notify_all();
}

void GroupLink::groupFailed() {
  const std::lock_guard lock(mutex_);
  failed_ = true;
  changed_.notify_all();
}

std::optional<std::uint64_t> GroupLink::enter(DelegatedCall call) {
  const std::lock_guard lock(mutex_);
  if (!membership_) return std::nullopt;
  call.failed = [link = shared_from_this(), failed = std::move(call.failed)](const Error& error) {
    link->post([failed, error] { failed(error); });
  };
  return membership_->enter(std::move(call));
}

void GroupLink::finish(std::uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  if (membership_) membership_->finish(ticket);
}

void GroupLink::post(Completion::Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (membership_) return membership_->completion().post(std::move(task));
  }
  task();
}

void GroupLink::reportStockFailure(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(reported_, true)) return;
  }
  post([link = shared_from_this(), error] { link->waitForReason(error); });
}

void GroupLink::waitForReason(const Error& error) {
  std::unique_lock lock(mutex_);
  const bool known = changed_.wait_for(lock, kGrace, [this] { return failed_ || !membership_; });
  if (!known) membership_->abort(error);
}

Error GroupLink::error() const {
  const std::lock_guard lock(mutex_);
  return membership_ ? membership_->error() : Error();
}

}  // namespace fairring
