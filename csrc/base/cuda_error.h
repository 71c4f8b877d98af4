// CUDA's errors as ours, and the thread's current device for a scope. Any thread.
// CUDA keeps the last error of a thread until it is queried. An error that is seen here is cleared there, so that torch
// does not report it as its own: torch queries it after each of its launches.
#pragma once

#include <new>

#include "base/cuda_runtime.h"
#include "base/error.h"

namespace fairring {

// "cudaMalloc on CUDA device 0: out of memory (cudaErrorMemoryAllocation)". Always of kind System.
Error cudaFailure(cudaError_t result, const char* call, int device);

// Clears a failed call's error, of which nobody is told.
void forget(cudaError_t result);

// Throws a failed call's error as a Failure.
void checkCuda(cudaError_t result, const char* call, int device);

// Makes the device's context current too, which calls of the driver need: a thread that has not called CUDA has the
// first device without it. Restores the previous device, unless the process does not use it: making it current would
// begin to use it. Within the scope of another one of the same device it calls nothing, so whoever makes many calls
// makes one around them.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);                  // throws Failure
  CurrentDevice(int device, std::nothrow_t) noexcept;  // if the device is lost, the current one stays
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  void makeCurrent(int device);

  int outer_ = -1;   // the device of the scope around this one; -1: there is none
  int before_ = -1;  // the device to restore; -1: it was this device
};

// Destructors call this with the call that drops an object of the device's. It is lost if the device is lost.
template <class Drop>
void dropOn(int device, Drop drop) noexcept {
  try {
    const CurrentDevice current(device);
    forget(drop());
  } catch (const Failure&) {
    return;
  }
}

}  // namespace fairring
