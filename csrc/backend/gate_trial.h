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
  static constexpr std::chrono::seconds kLimit{5};

  // sharesQueues: with other processes, so that there are too few for all streams of the program's.
  GateTrial(const c10::Device& device, bool sharesQueues) : device_(device), sharesQueues_(sharesQueues) {}

  // Both return a reason why not, in words; empty: all is well.
  // Waits until the program's earlier work is over, before anything that may wait for the device without a limit: the
  // caller's stream, and calls of NCCL's, which wait for other ranks. areCallsOver: of all groups of this process.
  std::string awaitEarlierWork(std::chrono::milliseconds patience, const std::function<bool()>& areCallsOver) const;
  // Streams stand at gates, the program's kernels and copies get past them, in its side streams too unless processes
  // share the queues, and the device reports its progress to the host.
  std::string run(Accelerator& accelerator) const;

 private:
  const c10::Device device_;
  const bool sharesQueues_;
};

}  // namespace fairring
