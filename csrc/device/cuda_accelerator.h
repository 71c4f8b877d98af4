// The accelerator that is a CUDA device.
// Threads as in accelerator.h.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "device/accelerator.h"
#include "device/nccl_limits.h"
#include "device/nccl_patience.h"

namespace fairring {

// The ranks of one machine, which meet in NCCL.
struct NcclRanks {
  int index = 0;  // this rank's, in ascending order of ranks
  int count = 1;
  // Gives every one of them the text that the first passes. May wait for them; throws Failure.
  std::function<std::string(const std::string& mine)> fromFirst;
};

// Why the device can't be an accelerator, in words; empty where it can.
std::string whyNoCudaAccelerator(int device);

// rank: this one in the group, for errors. All ranks of the machine at once: it waits for them, each time no longer
// than the patience says. Throws Failure.
std::unique_ptr<Accelerator> makeCudaAccelerator(int device, int rank, const NcclRanks& machine,
                                                 const NcclPatience& patience, const NcclLimits& limits = {});

}  // namespace fairring
