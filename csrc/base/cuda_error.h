// Errors of CUDA as ours, and the thread's current device for a scope. Only in builds with CUDA. Any thread.
// CUDA keeps the last error of a thread for whoever asks next; what is reported here is taken from there, so that
// torch, which asks after each of its launches, does not report it as its own.
#pragma once

#include <cuda_runtime_api.h>

#include <new>

#include "base/error.h"

namespace fairring {

// "cudaMalloc on CUDA device 0: out of memory (cudaErrorMemoryAllocation)". System, whatever it was.
Error cudaFailure(cudaError_t result, const char* call, int device);

// Throws it as a Failure, unless the call succeeded.
void checkCuda(cudaError_t result, const char* call, int device);

// Goes back to the device before, unless the process does not use that: making it current would begin to.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);                  // throws Failure
  CurrentDevice(int device, std::nothrow_t) noexcept;  // where the device is lost, the current one stays
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = -1;  // what to go back to; -1: it was this device
};

// For destructors: what is dropped belongs to the device, and where that is lost, so is what belongs to it.
template <class Drop>
void dropOn(int device, Drop drop) noexcept {
  try {
    const CurrentDevice current(device);
    drop();
  } catch (const Failure&) {
    return;
  }
}

}  // namespace fairring
