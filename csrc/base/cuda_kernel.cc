#include "base/cuda_kernel.h"

#include <cuda_runtime_api.h>

#include "base/cuda_driver.h"
#include "base/cuda_error.h"

namespace fairring {

void loadKernel(const void* kernel, int device) {
  const CurrentDevice current(device);
  cudaFunction_t function = nullptr;
  checkCuda(cudaGetFuncBySymbol(&function, kernel), "cudaGetFuncBySymbol", device);
  const auto loadFunction = reinterpret_cast<PFN_cuFuncLoad_v12040>(driverCall("cuFuncLoad", 12040));
  if (loadFunction == nullptr) return;  // an older driver loads it as its function is asked for
  const CUresult result = loadFunction(function);
  check(result == CUDA_SUCCESS, ErrorKind::System, "cuFuncLoad on CUDA device ", device, ": error ",
        static_cast<int>(result), " of the driver");
}

}  // namespace fairring
