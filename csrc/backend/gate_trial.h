// The part of FAIRRING_CUDA=auto's trial that one rank makes alone, on a caller's thread: whether a device can do what
// gates ask of it.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <functional>
#include <string>

#include "device/accelerator.h"

namespace fairring {

class GateTrial {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kLimit{5};
  static constexpr int kSideStreams = 4;  // of each priority: as many as FSDP2 has

  explicit GateTrial(const c10::Device& device) : device_(device) {}

  // Looks again and again: a device tells nobody that it is through.
  static bool comesBefore(Clock::time_point deadline, const std::function<bool()>& condition);

  // Both return a reason why not, in words; empty: all is well.
  // Waits until the program's earlier work is over, before anything that may wait for the device without a limit: the
  // caller's stream, and calls of NCCL's, which wait for other ranks. areCallsOver: of all groups of this process.
  std::string awaitEarlierWork(std::chrono::milliseconds patience, const std::function<bool()>& areCallsOver) const;
  // Streams stand at gates, the program's kernels and copies get past them, and the device reports its progress to the
  // host.
  std::string run(Accelerator& accelerator);
  // The side streams of the program's that did not get past: they share a hardware queue with a gate.
  int heldBack() const { return heldBack_; }

 private:
  const c10::Device device_;
  int heldBack_ = 0;
};

}  // namespace fairring
