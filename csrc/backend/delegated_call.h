// A call of NCCL's that may be under way, for calls that have to begin behind it (memory_in_flight.h). It keeps NCCL's
// Work, which has the call's outputs, until the call is over or somebody has waited for it. Any thread.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace fairring {

class DelegatedCall {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  void begin(WorkPtr work);  // until then it waits for the end of a block of calls
  void letGo();
  bool isOver() const;
  void holdBack(const c10::Stream& stream) const;

 private:
  enum class State : std::uint8_t { Waits, UnderWay, LetGo };
  WorkPtr work() const;

  mutable std::mutex mutex_;  // guards all below
  State state_ = State::Waits;
  WorkPtr work_;
};

}  // namespace fairring
