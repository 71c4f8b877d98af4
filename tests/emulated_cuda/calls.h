// How each emulated call of the runtime begins, in its own function. Queries leave a thread without a context as it is.
#pragma once

#include "device.h"
#include "faults.h"
#include "host_thread.h"

#define EMULATED_QUERY(name)                                                           \
  if (!emulated::mayCall(name)) return emulated::failed(cudaErrorInitializationError); \
  if (emulated::isToFail(name, __builtin_return_address(0))) return emulated::failed(cudaErrorUnknown)
#define EMULATED_CALL(name) \
  EMULATED_QUERY(name);     \
  emulated::hostThread().hasContext = true
// Under the mutex: for calls that may synchronise.
#define EMULATED_UNCAPTURED(name) \
  if (emulated::isForbiddenByCapture(name)) return emulated::failed(cudaErrorStreamCaptureUnsupported)

namespace emulated {

// Held by calls that wait for a device inside the driver, and, where the settings say so, asked for by host functions.
std::mutex& driverMutex();
// Waits for the device as calls inside the driver do. Under the mutex.
void awaitInDriver(Devices::Lock& lock, int device);

}  // namespace emulated
