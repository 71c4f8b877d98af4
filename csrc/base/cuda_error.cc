#include "base/cuda_error.h"

#include "base/cuda_driver.h"

namespace fairring {
namespace {

thread_local int deviceInScope = -1;  // the device of the innermost CurrentDevice; -1: there is none

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

void forget(cudaError_t result) {
  if (result != cudaSuccess) cudaGetLastError();
}

void checkCuda(cudaError_t result, const char* call, int device) {
  if (result == cudaSuccess) return;
  forget(result);
  throw Failure(cudaFailure(result, call, device));
}

CurrentDevice::CurrentDevice(int device) : outer_(deviceInScope) {
  if (deviceInScope != device) makeCurrent(device);
}

CurrentDevice::CurrentDevice(int device, std::nothrow_t) noexcept : outer_(deviceInScope) {
  try {
    if (deviceInScope != device) makeCurrent(device);
  } catch (const Failure&) {
    return;
  }
}

void CurrentDevice::makeCurrent(int device) {
  int before = -1;
  checkCuda(cudaGetDevice(&before), "cudaGetDevice", device);
  checkCuda(cudaSetDevice(device), "cudaSetDevice", device);
  deviceInScope = device;
  if (before != device) before_ = before;
}

CurrentDevice::~CurrentDevice() {
  deviceInScope = outer_;
  if (before_ >= 0 && isInUse(before_)) forget(cudaSetDevice(before_));
}

}  // namespace fairring
