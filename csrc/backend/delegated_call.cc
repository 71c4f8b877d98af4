#include "backend/delegated_call.h"

#include <c10/core/StreamGuard.h>

namespace fairring {

void DelegatedCall::letGo() {
  WorkPtr work;  // dropped after the lock, as the next
  Tensors tensors;
  const std::lock_guard lock(mutex_);
  work.swap(work_);
  tensors.swap(tensors_);
}

bool DelegatedCall::isOver() const {
  const WorkPtr work = this->work();
  return !work || work->isCompleted();
}

// NCCL's Work drops its tensors when a stream waits, though they may be another stream's. So they are kept here.
void DelegatedCall::holdBack(const c10::Stream& stream) const {
  const WorkPtr work = this->work();
  if (!work) return;
  const c10::StreamGuard onIt(stream);
  work->synchronize();
}

DelegatedCall::WorkPtr DelegatedCall::work() const {
  const std::lock_guard lock(mutex_);
  return work_;
}

}  // namespace fairring
