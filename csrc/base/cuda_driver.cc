#include "base/cuda_driver.h"

#include <cuda_runtime_api.h>

namespace fairring {

void* driverCall(const char* name, unsigned version) {
  void* call = nullptr;
  auto found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t result = cudaGetDriverEntryPointByVersion(name, &call, version, cudaEnableDefault, &found);
  if (result == cudaSuccess && found == cudaDriverEntryPointSuccess) return call;
  cudaGetLastError();  // it has been seen
  return nullptr;
}

}  // namespace fairring
