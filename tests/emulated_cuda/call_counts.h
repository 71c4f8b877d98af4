// How often each library calls CUDA and NCCL, for tests that hold what Fairring's calls cost the host. Of the calls
// that can fail for a test (faults.h). Any thread.
#pragma once

#include "emulated.h"

namespace emulated {

// caller: an address in the caller's code.
void countCall(const char* call, const void* caller);

}  // namespace emulated

// Counts from zero on.
extern "C" EMULATED_API void cudaEmulatedCount();
// A line for each call so far from a library whose file has that name in its own: "cudaEventRecord 3". Ends the count.
extern "C" EMULATED_API const char* cudaEmulatedCounts(const char* library);
