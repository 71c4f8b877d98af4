// Calls of CUDA's driver that its runtime does not offer, looked up in the driver that the process has loaded. Only in
// builds with CUDA. Any thread.
#pragma once

#include <cudaTypedefs.h>

namespace fairring {

// The call as that version of CUDA declares it (12040: 12.4), to be cast to its type in cudaTypedefs.h. Null if this
// driver does not have it.
void* driverCall(const char* name, unsigned version);

}  // namespace fairring
