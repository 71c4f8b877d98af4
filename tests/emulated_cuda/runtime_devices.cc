// The part of the CUDA runtime for devices, errors and versions. A mere query does not begin to use a device.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "calls.h"
#include "report.h"
#include "settings.h"

using emulated::Devices;
using emulated::failed;
using emulated::hostThread;

namespace {

constexpr int kVersion = 13000;
constexpr int kCanWaitForValues64 = 122;  // of a stream
constexpr int kCanWaitForValues32 = 92;

// torch's operators on these devices, where torch is in the process: it asks for devices before it uses one.
void loadOperators() {
  static std::atomic<bool> loaded = false;
  const char* folder = std::getenv("EMULATED_CUDA_LIBRARIES");
  if (loaded || folder == nullptr || dlopen("libtorch_python.so", RTLD_NOLOAD | RTLD_LAZY) == nullptr) return;
  if (loaded.exchange(true)) return;
  const std::string library = std::string(folder) + "/libemulated_torch.so";
  if (dlopen(library.c_str(), RTLD_NOW) == nullptr) emulated::fatal("torch's operators: %s", dlerror());
}

bool exists(int device) { return device >= 0 && device < emulated::settings().devices; }

int attribute(int which) {
  static const std::map<int, int> values{
      {cudaDevAttrMultiProcessorCount, emulated::settings().multiprocessors},
      {cudaDevAttrComputeCapabilityMajor, emulated::settings().generation},
      {cudaDevAttrMaxThreadsPerBlock, 1024},
      {cudaDevAttrMaxBlockDimX, 1024},
      {cudaDevAttrMaxBlockDimY, 1024},
      {cudaDevAttrMaxBlockDimZ, 64},
      {cudaDevAttrMaxGridDimX, 0x7fffffff},
      {cudaDevAttrMaxGridDimY, 0xffff},
      {cudaDevAttrMaxGridDimZ, 0xffff},
      {cudaDevAttrMaxSharedMemoryPerBlock, 48 << 10},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, 227 << 10},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 228 << 10},
      {cudaDevAttrWarpSize, 32},
      {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
      {cudaDevAttrUnifiedAddressing, 1},
      {cudaDevAttrCanMapHostMemory, 1},
      {cudaDevAttrAsyncEngineCount, 1},
      {cudaDevAttrStreamPrioritiesSupported, 1},
      {cudaDevAttrHostRegisterSupported, 1},
      {cudaDevAttrConcurrentKernels, 1},
      {kCanWaitForValues64, 1},
      {kCanWaitForValues32, 1},
  };
  const auto found = values.find(which);
  return found == values.end() ? 0 : found->second;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  EMULATED_QUERY("cudaGetDeviceCount");
  loadOperators();
  *count = emulated::settings().devices;
  return *count > 0 ? cudaSuccess : failed(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int* device) {
  EMULATED_QUERY("cudaGetDevice");
  *device = hostThread().device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  EMULATED_CALL("cudaSetDevice");
  if (!exists(device)) return failed(cudaErrorInvalidDevice);
  hostThread().device = device;
  const Devices::Lock lock = Devices::all().lock();
  Devices::all().use(device);
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  EMULATED_QUERY("cudaDeviceGetAttribute");
  if (!exists(device)) return failed(cudaErrorInvalidDevice);
  *value = attribute(which);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  EMULATED_QUERY("cudaGetDeviceProperties");
  if (!exists(device)) return failed(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "Emulated CUDA device");
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  properties->pciBusID = device + 1;
  properties->totalGlobalMem = emulated::settings().deviceBytes;
  properties->major = attribute(cudaDevAttrComputeCapabilityMajor);
  properties->multiProcessorCount = attribute(cudaDevAttrMultiProcessorCount);
  properties->warpSize = attribute(cudaDevAttrWarpSize);
  properties->maxThreadsPerBlock = attribute(cudaDevAttrMaxThreadsPerBlock);
  properties->maxThreadsPerMultiProcessor = attribute(cudaDevAttrMaxThreadsPerMultiProcessor);
  properties->maxBlocksPerMultiProcessor = 32;
  for (int i = 0; i < 3; ++i) {
    properties->maxThreadsDim[i] = attribute(cudaDevAttrMaxBlockDimX + i);
    properties->maxGridSize[i] = attribute(cudaDevAttrMaxGridDimX + i);
  }
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = 227 << 10;
  properties->sharedMemPerMultiprocessor = 228 << 10;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 64 << 10;
  properties->totalConstMem = 64 << 10;
  properties->l2CacheSize = 50 << 20;
  properties->textureAlignment = 512;
  properties->unifiedAddressing = properties->canMapHostMemory = properties->concurrentKernels = 1;
  properties->asyncEngineCount = properties->streamPrioritiesSupported = properties->hostRegisterSupported = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  EMULATED_CALL("cudaDeviceGetStreamPriorityRange");
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }

cudaError_t cudaDeviceSynchronize() {
  EMULATED_CALL("cudaDeviceSynchronize");
  Devices::Lock lock = Devices::all().lock();
  EMULATED_UNCAPTURED("cudaDeviceSynchronize");
  Devices::all().awaitDevice(lock, hostThread().device);
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return std::exchange(hostThread().lastError, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return hostThread().lastError; }

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInitializationError: return "cudaErrorInitializationError";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidDeviceFunction: return "cudaErrorInvalidDeviceFunction";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorNotSupported: return "cudaErrorNotSupported";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    default: return "an error of emulated CUDA";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaSuccess) return "no error";
  return error == cudaErrorMemoryAllocation ? "out of memory" : cudaGetErrorName(error);
}

cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

// There are no pools of memory; torch sets up the default ones.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = nullptr;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) { return cudaSuccess; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }

}  // extern "C"
