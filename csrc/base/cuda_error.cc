#include "base/cuda_error.h"

#include "base/cuda_driver.h"

namespace fairring {
namespace {

bool isInUse(int device) {
  const auto stateOf = driverCall<int, unsigned*, int*>("cuDevicePrimaryCtxGetState", 7000);
  unsigned flags = 0;
  int active = 0;
  return stateOf != nullptr && stateOf(device, &flags, &active) == kDriverSuccess && active != 0;
}

}  // namespace

Error cudaFailure(cudaError_t result, const char* call, int device) {
  return makeError(ErrorKind::System, call, " on CUDA device ", device, ": ", cudaGetErrorString(result), " (",
                   cudaGetErrorName(result), ")");
}

void checkCuda(cudaError_t result, const char* call, int device) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // it has been seen
  throw Failure(cudaFailure(result, call, device));
}

CurrentDevice::CurrentDevice(int device) {
  int before = -1;
  checkCuda(cudaGetDevice(&before), "cudaGetDevice", device);
  checkCuda(cudaSetDevice(device), "cudaSetDevice", device);
  if (before != device) before_ = before;
}

CurrentDevice::CurrentDevice(int device, std::nothrow_t) noexcept {
  int before = -1;
  if (cudaGetDevice(&before) != cudaSuccess || cudaSetDevice(device) != cudaSuccess) {
    cudaGetLastError();  // it has been seen
  } else if (before != device) {
    before_ = before;
  }
}

CurrentDevice::~CurrentDevice() {
  if (before_ >= 0 && isInUse(before_)) cudaSetDevice(before_);
}

}  // namespace fairring
