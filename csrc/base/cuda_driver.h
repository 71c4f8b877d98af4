// Calls of CUDA's driver, which its runtime looks up in the driver that the process has loaded. Any thread.
#pragma once

#include <string>

#include "base/cuda_runtime.h"

namespace fairring {

constexpr int kDriverSuccess = 0;  // what each returns that has worked

void* driverEntry(const char* name, unsigned version);

// The call as that version of CUDA declares it (12040: 12.4). Null if this driver does not have it.
template <class... Arguments>
auto driverCall(const char* name, unsigned version) {
  return reinterpret_cast<int (*)(Arguments...)>(driverEntry(name, version));
}

// "CUDA_ERROR_INVALID_VALUE".
std::string driverErrorName(int result);

// Throws a failed call's error as a Failure.
void checkDriver(int result, const char* call, int device);

}  // namespace fairring
