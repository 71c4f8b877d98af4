#include "base/cuda_driver.h"

#include "base/cuda_error.h"
#include "base/error.h"

namespace fairring {

void* driverEntry(const char* name, unsigned version) {
  void* call = nullptr;
  auto found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t result = cudaGetDriverEntryPointByVersion(name, &call, version, cudaEnableDefault, &found);
  if (result == cudaSuccess && found == cudaDriverEntryPointSuccess) return call;
  forget(result);
  return nullptr;
}

std::string driverErrorName(int result) {
  const auto nameOf = driverCall<int, const char**>("cuGetErrorName", 6000);
  const char* name = nullptr;
  if (nameOf != nullptr && nameOf(result, &name) == kDriverSuccess) return name;
  return concat("error ", result, " of the driver");
}

void checkDriver(int result, const char* call, int device) {
  if (result == kDriverSuccess) return;
  throw Failure(makeError(ErrorKind::System, call, " on CUDA device ", device, ": ", driverErrorName(result)));
}

}  // namespace fairring
