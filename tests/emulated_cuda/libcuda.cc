// libcuda.so.1: the names that libraries are linked to or look up in it. All are the emulated runtime's (driver.cc).
#include <string>

#include "emulated.h"

namespace emulated {

EMULATED_API void* driverCall(const std::string& name);

}  // namespace emulated

// Handles are pointers and devices ints; what a function takes beyond what it needs is not looked at.
#define FORWARD(name)                                                                                     \
  extern "C" EMULATED_API int name(void* first, void* second, void* third) {                              \
    static const auto call = reinterpret_cast<int (*)(void*, void*, void*)>(emulated::driverCall(#name)); \
    return call(first, second, third);                                                                    \
  }

FORWARD(cuInit)
FORWARD(cuDriverGetVersion)
FORWARD(cuDeviceGetCount)
FORWARD(cuDeviceGet)
FORWARD(cuDeviceGetAttribute)
FORWARD(cuDevicePrimaryCtxGetState)
FORWARD(cuCtxGetCurrent)
FORWARD(cuCtxSetCurrent)
FORWARD(cuGetErrorName)
FORWARD(cuGetErrorString)
