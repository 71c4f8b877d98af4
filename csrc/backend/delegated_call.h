// A call of NCCL's that may be under way, for calls that have to begin behind it (memory_in_flight.h). It keeps NCCL's
// Work, which has the call's outputs, until the call is over or somebody has waited for it. Any thread.
#pragma once

#include <c10/core/Stream.h>

#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

namespace fairring {

class DelegatedCall {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  explicit DelegatedCall(WorkPtr work) : work_(std::move(work)) {}
  void letGo();
  bool isOver() const;
  void holdBack(const c10::Stream& stream) const;

 private:
  WorkPtr work() const;

  mutable std::mutex mutex_;  // guards the next
  WorkPtr work_;              // null once it was let go
};

}  // namespace fairring
