// Access to torch's CUDA: raw streams and accelerators. Where there is none there is a reason instead, and the
// functions below are not called but for those that count devices.
#pragma once

#include <c10/core/Stream.h>

#include <memory>
#include <string>

#include "base/cuda_stream.h"
#include "device/cuda_accelerator.h"
#include "kernels/reduce.h"

namespace fairring {

std::string whyNoCuda();  // in words; empty: torch has CUDA, and this build kernels
// Why the first unable device among all that this process sees can't carry calls; empty: all can. Does not begin to use
// a device.
std::string deviceObstacleHere();
int fewestMultiprocessors();  // among the same; 0: there is none
// As makeCudaAccelerator(). Where a device is full, torch lets the memory go that it caches there.
std::unique_ptr<Accelerator> makeAccelerator(int device, int rank, const NcclRanks& machine,
                                             const NcclPatience& patience, const NcclLimits& limits);
bool machineReduces(const Reduction& reduction);  // whether level 0 and our kernels do
c10::Stream newCudaStream(int device);
c10::Stream callersStream(const c10::Device& device);
Accelerator::Stream rawStream(const c10::Stream& stream);
bool isCapturing(const c10::Stream& stream);
// For a thread that makes calls on that device while another one may capture; null where that is nothing to it.
std::unique_ptr<CaptureUnheeded> captureUnheeded(const c10::Device& device);

}  // namespace fairring
