// Calls of CUDA's driver that its runtime has no equal of, looked up in the driver that the process has. Only in builds
// with CUDA. Any thread.
#pragma once

#include <cudaTypedefs.h>

namespace fairring {

// The call as it is since that version of CUDA (12040: 12.4), to be cast to its type of cudaTypedefs.h. Null where this
// driver has none.
void* driverCall(const char* name, unsigned version);

}  // namespace fairring
