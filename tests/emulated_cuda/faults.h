// Calls that fail because a test asks for it, so that errors that a device seldom has are seen. Any thread.
#pragma once

#include "emulated.h"

namespace emulated {

// Whether this call of that name is to fail; caller: an address in its code. Counts it besides (call_counts.h).
EMULATED_API bool isToFail(const char* call, const void* caller);

}  // namespace emulated

// The call of that name, from a library whose file has that name in its own, fails once, after `before` more of them
// that do not. Replaces what was asked for before.
extern "C" EMULATED_API void cudaEmulatedFail(const char* call, const char* library, int before);
