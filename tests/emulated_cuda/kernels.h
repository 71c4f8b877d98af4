// The kernels that the program's libraries have registered, by the host's address of each, and those that they have
// loaded from images, by name. Any thread; its own mutex.
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
// A kernel of an image: any name is in any image.
CUkern_st* kernelNamed(const std::string& name);
cudaError_t launch(CUkern_st& kernel, dim3 grid, dim3 block, void** parameters, cudaStream_t stream);

}  // namespace emulated
