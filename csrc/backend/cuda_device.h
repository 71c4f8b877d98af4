// This build's access to CUDA: raw streams and accelerators. A build without CUDA has a reason instead, and the other
// functions are never called.
#pragma once

#include <c10/core/Stream.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "device/accelerator.h"
#include "device/nccl_limits.h"
#include "kernels/reduce.h"

namespace fairring {

struct AcceleratorPlace {
  int device;
  int rank;   // in the group
  int world;  // of the group
  int index;  // among the ranks of its machine
  int count;
  using FromFirst = std::function<std::string(const std::string& mine)>;
  FromFirst fromFirst;       // the machine's first rank's text, for all of them
  FromFirst fromFirstOfAll;  // rank 0's, for all of the group; null where the device has no rails of its own
  NcclLimits ncclLimits = {};
  std::function<bool()> isOver = nullptr;  // the group has failed while it is made; null: it can't
  std::chrono::milliseconds timeout;
};

std::string_view whyNoCuda();  // in this build; empty: it has CUDA
// Why the device can't carry calls, nor run our kernels; empty: it can. Does not begin to use a device.
std::string deviceObstacle(int device);
std::string deviceObstacleHere();  // of the first unable one among all that this process sees
int fewestMultiprocessors();       // among the same; 0: there is none
std::unique_ptr<Accelerator> makeAccelerator(const AcceleratorPlace& place);  // throws Failure
bool machineReduces(const Reduction& reduction, int device);                  // whether level 0 supports it there
c10::Stream newCudaStream(int device);
Accelerator::Stream rawStream(const c10::Stream& stream);
bool isCapturing(const c10::Stream& stream);

}  // namespace fairring
