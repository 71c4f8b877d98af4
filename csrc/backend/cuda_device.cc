#include "backend/cuda_device.h"

#ifdef FAIRRING_CUDA

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/cuda_memory.h"
#include "base/error.h"
#include "device/cuda_accelerator.h"

namespace fairring {

namespace {

// NCCL sums floats of 8 bits from sm_90 on.
bool ncclSums(DType dtype, int device) {
  if (dtype != DType::Float8E4M3 && dtype != DType::Float8E5M2) return true;
  int major = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major >= 9;
}

int devicesHere() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess) return devices;
  cudaGetLastError();  // it has been seen
  return 0;
}

}  // namespace

std::string_view whyNoCuda() { return {}; }

std::string deviceObstacle(int device) { return whyNoCudaAccelerator(device); }

std::string deviceObstacleHere() {
  const int devices = devicesHere();
  for (int device = 0; device < devices; ++device) {
    if (std::string obstacle = deviceObstacle(device); !obstacle.empty()) return obstacle;
  }
  return devices > 0 ? "" : "it sees no CUDA device";
}

int fewestMultiprocessors() {
  int fewest = 0;
  for (int device = devicesHere() - 1; device >= 0; --device) {
    int number = 0;
    if (cudaDeviceGetAttribute(&number, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
      cudaGetLastError();  // it has been seen
      return 0;
    }
    fewest = fewest == 0 ? number : std::min(fewest, number);
  }
  return fewest;
}

std::unique_ptr<Accelerator> makeAccelerator(const AcceleratorPlace& place) {
  static const bool isSet = [] {
    whenDeviceIsFull([] { c10::cuda::CUDACachingAllocator::emptyCache(); });
    return true;
  }();
  static_cast<void>(isSet);
  std::optional<NcclRanks> railsAmong;
  if (place.fromFirstOfAll) railsAmong = {place.rank, place.world, place.fromFirstOfAll};
  return makeCudaAccelerator(place.device, place.rank, {place.index, place.count, place.fromFirst}, railsAmong,
                             {place.timeout, place.isOver}, place.ncclLimits);
}

bool machineReduces(const Reduction& reduction, int device) {
  return levelZeroReduces(reduction) && ncclSums(reduction.dtype, device);
}

c10::Stream newCudaStream(int device) {
  return c10::cuda::getStreamFromPool(true, static_cast<c10::DeviceIndex>(device)).unwrap();
}

Accelerator::Stream rawStream(const c10::Stream& stream) { return c10::cuda::CUDAStream(stream).stream(); }

bool isCapturing(const c10::Stream& stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(c10::cuda::CUDAStream(stream).stream(), &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace fairring

#else

#include <stdexcept>

namespace fairring {

namespace {

[[noreturn]] void refuse() { throw std::logic_error("this build has no CUDA"); }

}  // namespace

std::string_view whyNoCuda() {
  return "this build of Fairring has no CUDA: where it was made there was no CUDA compiler, no header of NCCL's, CMake "
         "before 3.26, or a torch without CUDA, and CMake's output says which";
}
std::string deviceObstacle(int /*device*/) { refuse(); }
std::string deviceObstacleHere() { refuse(); }
int fewestMultiprocessors() { return 0; }
std::unique_ptr<Accelerator> makeAccelerator(const AcceleratorPlace& /*place*/) { refuse(); }
bool machineReduces(const Reduction& /*reduction*/, int /*device*/) { return false; }
c10::Stream newCudaStream(int /*device*/) { refuse(); }
Accelerator::Stream rawStream(const c10::Stream& /*stream*/) { refuse(); }
bool isCapturing(const c10::Stream& /*stream*/) { refuse(); }

}  // namespace fairring

#endif
