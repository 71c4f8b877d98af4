// A call of NCCL's that may be under way, for calls that have to begin behind it (memory_in_flight.h). It keeps NCCL's
// Work and the call's tensors until the call is over or somebody has waited for it, and the backend that this Work
// points to. Any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StreamGuard.h>

#include <mutex>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

namespace fairring {

class DelegatedCall {
 public:
  using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  DelegatedCall(BackendPtr backend, WorkPtr work, Tensors tensors)
      : backend_(std::move(backend)), work_(std::move(work)), tensors_(std::move(tensors)) {}
  void letGo() {
    WorkPtr work;  // dropped after the lock, as the next
    Tensors tensors;
    const std::lock_guard lock(mutex_);
    work.swap(work_);
    tensors.swap(tensors_);
  }
  bool isOver() const {
    const WorkPtr work = this->work();
    return !work || work->isCompleted();
  }
  // NCCL's Work drops its tensors when a stream waits, though they may be another stream's. So they are kept here.
  void holdBack(const c10::Stream& stream) const {
    const WorkPtr work = this->work();
    if (!work) return;
    const c10::StreamGuard onIt(stream);
    work->synchronize();
  }

 private:
  WorkPtr work() const {
    const std::lock_guard lock(mutex_);
    return work_;
  }

  const BackendPtr backend_;  // before the Work, which goes first

  mutable std::mutex mutex_;  // guards the next
  WorkPtr work_;              // null once it was let go
  Tensors tensors_;           // none then
};

}  // namespace fairring
