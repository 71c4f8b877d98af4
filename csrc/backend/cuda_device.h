// Access to torch's CUDA: raw streams and accelerators. Where there is none there is a reason instead, and the
// functions below are not called but for those that count devices.
#pragma once

#include <c10/core/Stream.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/cuda_stream.h"
#include "device/accelerator.h"
#include "device/nccl_limits.h"
#include "kernels/reduce.h"

namespace fairring {

struct AcceleratorPlace {
  int device;
  int rank;   // in the group
  int index;  // among the ranks of its machine
  int count;
  std::function<std::string(const std::string& mine)> fromFirst;  // the first of these ranks' text, for all of them
  NcclLimits ncclLimits = {};
  std::function<bool()> isOver = nullptr;  // the group has failed while it is made; null: it can't
  std::chrono::milliseconds timeout;
};

std::string whyNoCuda();  // in words; empty: torch has CUDA, and this build kernels
// Why the first unable device among all that this process sees can't carry calls; empty: all can. Does not begin to use
// a device.
std::string deviceObstacleHere();
int fewestMultiprocessors();                                                  // among the same; 0: there is none
std::unique_ptr<Accelerator> makeAccelerator(const AcceleratorPlace& place);  // throws Failure
bool machineReduces(const Reduction& reduction);                              // whether level 0 and our kernels do
c10::Stream newCudaStream(int device);
c10::Stream callersStream(const c10::Device& device);
Accelerator::Stream rawStream(const c10::Stream& stream);
bool isCapturing(const c10::Stream& stream);
// For a thread that makes calls on that device while another one may capture; null where that is nothing to it.
std::unique_ptr<CaptureUnheeded> captureUnheeded(const c10::Device& device);

}  // namespace fairring
