#include "backend/delegated_call.h"

#include <c10/core/StreamGuard.h>

namespace fairring {

void DelegatedCall::letGo() {
  WorkPtr dropped;  // after the lock: it may have tensors
  const std::lock_guard lock(mutex_);
  dropped.swap(work_);
}

bool DelegatedCall::isOver() const {
  const WorkPtr work = this->work();
  return !work || work->isCompleted();
}

// A wait() for the Work would make it drop tensors that nobody else may keep. Its future drops nothing.
void DelegatedCall::holdBack(const c10::Stream& stream) const {
  const WorkPtr work = this->work();
  if (!work) return;
  const c10::StreamGuard onIt(stream);
  if (const auto future = work->getFuture()) future->wait();
}

DelegatedCall::WorkPtr DelegatedCall::work() const {
  const std::lock_guard lock(mutex_);
  return work_;
}

}  // namespace fairring
