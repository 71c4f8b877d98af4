// The interface of the emulated runtime to the other emulated libraries and to providers of kernels. Any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "report.h"

#define EMULATED_API [[gnu::visibility("default")]]

namespace emulated {

// A piece of a stream's work, run on the thread of its hardware queue; a graph that has captured it runs it each time.
EMULATED_API void enqueue(cudaStream_t stream, std::string what, std::function<void()> run);
// Where the emulator's own code finds bytes that the program names; of host memory, that itself. Ends the process where
// they are not all of one allocation of a device, or of pinned memory.
EMULATED_API void* reach(const void* address, std::size_t bytes, const char* what);
EMULATED_API bool isReachable(const void* address);
EMULATED_API void pauseOfSeed();

// A kernel by what it leaves behind. sizes: of its parameters, in order, for they are copied as it is launched.
struct Kernel {
  std::vector<std::size_t> sizes;
  std::function<void(dim3 grid, dim3 block, void** parameters)> run;
};
// Asked with the demangled name of a kernel that is launched for the first time; false where it is not one of its own.
using KernelFinder = bool (*)(const std::string& name, Kernel& kernel);
EMULATED_API void addKernels(KernelFinder finder);

template <class T>
T* reachArray(T* address, std::size_t elements, const char* what) {
  return static_cast<T*>(reach(address, elements * sizeof(T), what));
}

}  // namespace emulated
