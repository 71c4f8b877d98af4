// The part of the CUDA runtime for kernels, as their providers have registered them (emulated.h). An unknown kernel
// ends the process with its name.
#include <cuda_runtime_api.h>
#include <cxxabi.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "calls.h"
#include "kernels.h"
#include "settings.h"

using emulated::Devices;
using emulated::failed;

namespace {

struct Registry {
  std::mutex mutex;
  std::unordered_map<const void*, CUkern_st*> byFunction;
  std::map<std::string, CUkern_st*> byName;
  std::vector<emulated::KernelFinder> finders;
};

Registry& registry() {
  static Registry& all = *new Registry;
  return all;
}

std::string demangled(const char* name) {
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, nullptr),
                                                         std::free);
  return text == nullptr ? name : text.get();
}

void find(CUkern_st& registered) {
  const std::lock_guard lock(registry().mutex);
  if (registered.kernel.run) return;
  for (const emulated::KernelFinder finder : registry().finders) {
    if (finder(registered.name, registered.kernel)) return;
  }
  emulated::fatal("no emulation of the kernel %s", registered.name.c_str());
}

// A launch copies the parameters.
struct Parameters {
  std::vector<std::vector<char>> values;
  std::vector<void*> pointers;

  Parameters(const std::vector<std::size_t>& sizes, void** from) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto* begin = static_cast<const char*>(from[i]);
      values.emplace_back(begin, begin + sizes[i]);
    }
    for (auto& value : values) pointers.push_back(value.data());
  }
};

cudaError_t launch(const void* function, dim3 grid, dim3 block, void** parameters, cudaStream_t stream) {
  CUkern_st* registered = emulated::registeredKernel(function);
  if (registered == nullptr) return failed(cudaErrorInvalidDeviceFunction);
  return emulated::launch(*registered, grid, block, parameters, stream);
}

CUkern_st* newKernel(const char* name) {
  const auto devices = static_cast<std::size_t>(emulated::settings().devices);
  return new CUkern_st{demangled(name), std::vector<bool>(devices), {}};
}

struct Configuration {
  dim3 grid;
  dim3 block;
  std::size_t sharedBytes;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;  // of kernel<<<...>>>

}  // namespace

namespace emulated {

void addKernels(KernelFinder finder) {
  const std::lock_guard lock(registry().mutex);
  registry().finders.push_back(finder);
}

CUkern_st* registeredKernel(const void* function) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().byFunction.find(function);
  return found == registry().byFunction.end() ? nullptr : found->second;
}

CUkern_st* kernelNamed(const std::string& name) {
  const std::lock_guard lock(registry().mutex);
  CUkern_st*& kernel = registry().byName[name];
  if (kernel == nullptr) kernel = newKernel(name.c_str());
  registry().byFunction[kernel] = kernel;
  return kernel;
}

cudaError_t launch(CUkern_st& kernel, dim3 grid, dim3 block, void** parameters, cudaStream_t handle) {
  find(kernel);
  Devices& devices = Devices::all();
  Devices::Lock lock = devices.lock();
  devices.use(hostThread().device);
  Stream* stream = devices.stream(handle);
  const auto device = static_cast<std::size_t>(hostThread().device);
  if (!kernel.loaded[device] && settings().loadsWait && stream->capture == nullptr)
    awaitInDriver(lock, hostThread().device);
  kernel.loaded[device] = true;
  const auto copied = std::make_shared<Parameters>(kernel.kernel.sizes, parameters);
  devices.enqueue(stream, {kernel.name, nullptr, [&kernel, grid, block, copied] {
                             kernel.kernel.run(grid, block, copied->pointers.data());
                           }});
  return cudaSuccess;
}

}  // namespace emulated

extern "C" {

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): what the CUDA compiler calls
void** __cudaRegisterFatBinary(void*) { return new void*(nullptr); }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  auto* kernel = newKernel(name);
  const std::lock_guard lock(registry().mutex);
  registry().byFunction[function] = kernel;
  registry().byFunction[kernel] = kernel;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t sharedBytes, CUstream_st* stream) {
  configurations.push_back({grid, block, sharedBytes, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* sharedBytes, void* stream) {
  if (configurations.empty()) return failed(cudaErrorMissingConfiguration);
  const Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *sharedBytes = last.sharedBytes;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = emulated::registeredKernel(function);
  return *kernel != nullptr ? cudaSuccess : failed(cudaErrorInvalidDeviceFunction);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** parameters, size_t,
                               cudaStream_t stream) {
  EMULATED_CALL("cudaLaunchKernel");
  if (emulated::isLeftOut(emulated::Omission::Kernel, __builtin_return_address(0))) return cudaSuccess;
  return launch(kernel, grid, block, parameters, stream);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* handle, const void* function) {
  EMULATED_CALL("cudaGetFuncBySymbol");
  *handle = reinterpret_cast<cudaFunction_t>(emulated::registeredKernel(function));
  return *handle != nullptr ? cudaSuccess : failed(cudaErrorInvalidDeviceFunction);
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** parameters, size_t,
                             cudaStream_t stream) {
  EMULATED_CALL("cudaLaunchKernel");
  if (emulated::isLeftOut(emulated::Omission::Kernel, __builtin_return_address(0))) return cudaSuccess;
  return launch(function, grid, block, parameters, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* configuration, const void* function, void** parameters) {
  EMULATED_CALL("cudaLaunchKernelExC");
  return launch(function, configuration->gridDim, configuration->blockDim, parameters, configuration->stream);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = 90;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 2;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t, unsigned) {
  *blocks = 2;
  return cudaSuccess;
}

}  // extern "C"
