// The kernels that the program's libraries have registered, by the host's address of each. Any thread; its own mutex.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "emulated.h"

struct CUkern_st {
  std::string name;          // demangled
  std::vector<bool> loaded;  // by device; under the devices' mutex
  emulated::Kernel kernel;   // once it has been looked for
};

namespace emulated {

// The kernel with that host address or handle; null if there is none.
CUkern_st* registeredKernel(const void* function);

}  // namespace emulated
