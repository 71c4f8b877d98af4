#include "backend/cuda_device.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "base/cuda_error.h"
#include "base/cuda_memory.h"
#include "base/loaded_function.h"
#include "kernels/device_images.h"
#include "kernels/device_sums.h"

namespace fairring {

namespace {

int devicesHere() {
  int devices = 0;
  if (!whyNoCuda().empty()) return 0;
  const cudaError_t result = cudaGetDeviceCount(&devices);
  forget(result);
  return result == cudaSuccess ? devices : 0;
}

}  // namespace

std::string whyNoCuda() {
  std::string missing = LoadedFunction::whyMissing();
  if (!missing.empty() || !deviceImages().empty()) return missing;
  return "this build of Fairring has no kernels for CUDA devices: where it was made there was no NVRTC, which torch's "
         "CUDA wheels bring along";
}

std::string deviceObstacleHere() {
  const int devices = devicesHere();
  for (int device = 0; device < devices; ++device) {
    if (std::string obstacle = whyNoCudaAccelerator(device); !obstacle.empty()) return obstacle;
  }
  return devices > 0 ? "" : "it sees no CUDA device";
}

int fewestMultiprocessors() {
  int fewest = 0;
  for (int device = devicesHere() - 1; device >= 0; --device) {
    int number = 0;
    const cudaError_t result = cudaDeviceGetAttribute(&number, cudaDevAttrMultiProcessorCount, device);
    forget(result);
    if (result != cudaSuccess) return 0;
    fewest = fewest == 0 ? number : std::min(fewest, number);
  }
  return fewest;
}

std::unique_ptr<Accelerator> makeAccelerator(int device, int rank, const NcclRanks& machine,
                                             const NcclPatience& patience, const NcclLimits& limits) {
  static const bool isSet = [] {
    whenDeviceIsFull([] { c10::getDeviceAllocator(c10::kCUDA)->emptyCache(); });
    return true;
  }();
  static_cast<void>(isSet);
  return makeCudaAccelerator(device, rank, machine, patience, limits);
}

bool machineReduces(const Reduction& reduction) { return DeviceSums::has(reduction); }

c10::Stream callersStream(const c10::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

c10::Stream newCudaStream(int device) {
  const c10::Device here(c10::kCUDA, static_cast<c10::DeviceIndex>(device));
  return c10::impl::VirtualGuardImpl(here.type()).getStreamFromGlobalPool(here, /*isHighPriority=*/true);
}

Accelerator::Stream rawStream(const c10::Stream& stream) { return stream.native_handle(); }

std::unique_ptr<CaptureUnheeded> captureUnheeded(const c10::Device& device) {
  const bool mayCapture = device.is_cuda() && cudaThreadExchangeStreamCaptureMode != nullptr;
  return mayCapture ? std::make_unique<CaptureUnheeded>() : nullptr;
}

bool isCapturing(const c10::Stream& stream) {
  if (cudaStreamIsCapturing == nullptr || stream.device_type() != c10::kCUDA) return false;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  checkCuda(cudaStreamIsCapturing(static_cast<cudaStream_t>(rawStream(stream)), &status), "cudaStreamIsCapturing",
            stream.device_index());
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace fairring
