// The calls of the CUDA driver that torch and Fairring look up by name, and the few that libcuda.so.1 itself exports.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <map>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "calls.h"
#include "emulated.h"
#include "faults.h"
#include "kernels.h"
#include "settings.h"

using emulated::Devices;
using emulated::hostThread;

namespace {

constexpr int kMicrosecondsBetweenLooks = 30;  // a device looks at a word that the host writes; nothing tells it

CUresult initialize(unsigned) { return CUDA_SUCCESS; }

CUresult driverVersion(int* version) {
  return cudaDriverGetVersion(version) == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult deviceCount(int* count) {
  *count = emulated::settings().devices;
  return CUDA_SUCCESS;
}

CUresult deviceOf(CUdevice* device, int index) {
  *device = index;
  return index >= 0 && index < emulated::settings().devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult deviceAttribute(int* value, CUdevice_attribute which, CUdevice device) {
  const cudaError_t error = cudaDeviceGetAttribute(value, static_cast<cudaDeviceAttr>(which), device);
  return error == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult primaryContextState(CUdevice device, unsigned* flags, int* isActive) {
  const Devices::Lock lock = Devices::all().lock();
  *flags = 0;
  *isActive = Devices::all().isUsed(device) ? 1 : 0;
  return CUDA_SUCCESS;
}

// A device's context is its number, from one on.
CUcontext contextOf(int device) { return std::bit_cast<CUcontext>(static_cast<std::uintptr_t>(device) + 1); }

CUresult retainPrimaryContext(CUcontext* context, CUdevice device) {
  const Devices::Lock lock = Devices::all().lock();
  Devices::all().use(device);
  *context = contextOf(device);
  return CUDA_SUCCESS;
}

CUresult currentContext(CUcontext* context) {
  const Devices::Lock lock = Devices::all().lock();
  *context = Devices::all().isUsed(hostThread().device) ? contextOf(hostThread().device) : nullptr;
  return CUDA_SUCCESS;
}

CUresult setCurrentContext(CUcontext context) {
  hostThread().hasContext = context != nullptr;
  if (context != nullptr) hostThread().device = static_cast<int>(reinterpret_cast<std::uintptr_t>(context)) - 1;
  return CUDA_SUCCESS;
}

CUresult errorText(CUresult, const char** text) {
  *text = "an error of the emulated driver";
  return CUDA_SUCCESS;
}

CUresult addressRange(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
  auto* at = std::bit_cast<void*>(address);
  const Devices::Lock lock = Devices::all().lock();
  emulated::Device* holder = Devices::all().holderOf(at);
  if (holder == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const emulated::DeviceMemory::Allocation found = holder->memory->allocationAt(at);
  *base = reinterpret_cast<CUdeviceptr>(found.begin);
  *bytes = found.bytes;
  return found.bytes > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult loadFunction(CUfunction function) {
  if (!emulated::mayCall("cuFuncLoad")) return CUDA_ERROR_NOT_INITIALIZED;
  if (emulated::isToFail("cuFuncLoad", __builtin_return_address(0))) return CUDA_ERROR_UNKNOWN;
  CUkern_st* kernel = emulated::registeredKernel(function);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const int device = hostThread().device;
  Devices::Lock lock = Devices::all().lock();
  Devices::all().use(device);
  if (!kernel->loaded[static_cast<std::size_t>(device)] && emulated::settings().loadsWait)
    emulated::awaitInDriver(lock, device);
  kernel->loaded[static_cast<std::size_t>(device)] = true;
  return CUDA_SUCCESS;
}

CUresult loadLibrary(CUlibrary* library, const void* image, CUjit_option*, void**, unsigned, CUlibraryOption*, void**,
                     unsigned) {
  if (!emulated::mayCall("cuLibraryLoadData")) return CUDA_ERROR_NOT_INITIALIZED;
  if (emulated::isToFail("cuLibraryLoadData", __builtin_return_address(0))) return CUDA_ERROR_UNKNOWN;
  *library = static_cast<CUlibrary>(const_cast<void*>(image));
  return image != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

CUresult kernelOfLibrary(CUkernel* kernel, CUlibrary, const char* name) {
  *kernel = emulated::kernelNamed(name);
  return CUDA_SUCCESS;
}

CUresult functionOfKernel(CUfunction* function, CUkernel kernel) {
  if (!hostThread().hasContext) return CUDA_ERROR_INVALID_CONTEXT;
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

CUresult occupancy(int* blocks, CUfunction, int, std::size_t) {
  *blocks = 2;
  return CUDA_SUCCESS;
}

CUresult launchKernel(CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,
                      unsigned blockY, unsigned blockZ, unsigned, CUstream stream, void** parameters, void**) {
  if (!emulated::mayCall("cuLaunchKernel")) return CUDA_ERROR_NOT_INITIALIZED;
  if (emulated::isToFail("cuLaunchKernel", __builtin_return_address(0))) return CUDA_ERROR_UNKNOWN;
  if (!hostThread().hasContext) return CUDA_ERROR_INVALID_CONTEXT;
  if (emulated::isLeftOut(emulated::Omission::Kernel, __builtin_return_address(0))) return CUDA_SUCCESS;
  CUkern_st* kernel = emulated::registeredKernel(function);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  emulated::launch(*kernel, {gridX, gridY, gridZ}, {blockX, blockY, blockZ}, parameters, stream);
  return CUDA_SUCCESS;
}

template <class Word>
bool hasCome(Word now, Word value, unsigned flags) {
  switch (flags & 3U) {
    case CU_STREAM_WAIT_VALUE_GEQ: return static_cast<std::make_signed_t<Word>>(now - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ: return now == value;
    case CU_STREAM_WAIT_VALUE_AND: return (now & value) != 0;
    default: return static_cast<Word>(~(now | value)) != 0;
  }
}

template <class Word>
std::atomic_ref<Word> wordAt(CUdeviceptr address, const char* what) {
  auto* at = std::bit_cast<Word*>(address);
  if (address % sizeof(Word) != 0 || !emulated::isReachable(at))
    emulated::fatal("%s: the word at %p is not aligned, or no device reaches it", what, static_cast<void*>(at));
  return std::atomic_ref<Word>(*emulated::reachArray(at, 1, what));
}

template <class Word>
CUresult waitForValue(CUstream stream, CUdeviceptr address, Word value, unsigned flags) {
  if (!emulated::mayCall("cuStreamWaitValue")) return CUDA_ERROR_NOT_INITIALIZED;
  if (emulated::isToFail("cuStreamWaitValue", __builtin_return_address(0))) return CUDA_ERROR_UNKNOWN;
  if (!hostThread().hasContext) return CUDA_ERROR_INVALID_CONTEXT;
  const std::atomic_ref<Word> word = wordAt<Word>(address, "cuStreamWaitValue");
  if (emulated::isLeftOut(emulated::Omission::WaitValue, __builtin_return_address(0))) return CUDA_SUCCESS;
  emulated::enqueue(stream, "a wait for a value", [=] {
    while (!hasCome(word.load(std::memory_order_acquire), value, flags)) usleep(kMicrosecondsBetweenLooks);
    if (const int late = emulated::settings().gatesLateMicroseconds; late > 0) usleep(static_cast<useconds_t>(late));
  });
  return CUDA_SUCCESS;
}

template <class Word>
CUresult writeValue(CUstream stream, CUdeviceptr address, Word value, unsigned) {
  if (!emulated::mayCall("cuStreamWriteValue")) return CUDA_ERROR_NOT_INITIALIZED;
  if (emulated::isToFail("cuStreamWriteValue", __builtin_return_address(0))) return CUDA_ERROR_UNKNOWN;
  if (!hostThread().hasContext) return CUDA_ERROR_INVALID_CONTEXT;
  const std::atomic_ref<Word> word = wordAt<Word>(address, "cuStreamWriteValue");
  if (emulated::isLeftOut(emulated::Omission::WriteValue, __builtin_return_address(0))) return CUDA_SUCCESS;
  // What was written too early stays: nobody would see it again if an older value came over it.
  const bool countsUp = emulated::leavesOut(emulated::Omission::WriteValueOrder);
  const auto write = [=] {
    if (!countsUp) return word.store(value, std::memory_order_release);
    Word before = word.load(std::memory_order_relaxed);
    while (before < value && !word.compare_exchange_weak(before, value, std::memory_order_release)) continue;
  };
  if (emulated::isLeftOut(emulated::Omission::WriteValueOrder, __builtin_return_address(0))) {
    write();
  } else {
    emulated::enqueue(stream, "a write of a value", write);
  }
  return CUDA_SUCCESS;
}

// There are none to call it with.
CUresult registerForLogs(CUlogsCallback, void* user, CUlogsCallbackHandle* handle) {
  if (handle != nullptr) *handle = static_cast<CUlogsCallbackHandle>(user);
  return CUDA_SUCCESS;
}

CUresult unregisterForLogs(CUlogsCallbackHandle) { return CUDA_SUCCESS; }

constexpr std::size_t kMostRefused = 64;

std::vector<std::string>& refusedCalls() {
  static std::vector<std::string>& names = *new std::vector<std::string>;
  return names;
}

template <std::size_t Index>
CUresult refuse() {
  emulated::say("%s was refused: it is not emulated", refusedCalls()[Index].c_str());
  return CUDA_ERROR_NOT_SUPPORTED;
}

template <class Function>
void* entry(Function* function) {
  return reinterpret_cast<void*>(function);
}

template <std::size_t... Indices>
void* refusal(std::size_t index, std::index_sequence<Indices...>) {
  static const std::array<void*, sizeof...(Indices)> calls{entry(refuse<Indices>)...};
  return calls.at(index);
}

// A call that says which one it is.
void* refusalOf(const std::string& name) {
  static std::mutex& mutex = *new std::mutex;
  const std::lock_guard lock(mutex);
  std::vector<std::string>& names = refusedCalls();
  names.reserve(kMostRefused);
  const auto found = std::ranges::find(names, name);
  const auto index = static_cast<std::size_t>(found - names.begin());
  if (found == names.end()) {
    if (names.size() == kMostRefused)
      emulated::fatal("%s: too many calls of the driver are not emulated", name.c_str());
    names.push_back(name);
  }
  return refusal(index, std::make_index_sequence<kMostRefused>());
}

}  // namespace

namespace emulated {

// Null where it is not emulated.
EMULATED_API void* driverCall(const std::string& name) {
  static const std::map<std::string, void*> calls{
      {"cuInit", entry(initialize)},
      {"cuDriverGetVersion", entry(driverVersion)},
      {"cuLogsRegisterCallback", entry(registerForLogs)},
      {"cuLogsUnregisterCallback", entry(unregisterForLogs)},
      {"cuDeviceGetCount", entry(deviceCount)},
      {"cuDeviceGet", entry(deviceOf)},
      {"cuDeviceGetAttribute", entry(deviceAttribute)},
      {"cuDevicePrimaryCtxGetState", entry(primaryContextState)},
      {"cuDevicePrimaryCtxRetain", entry(retainPrimaryContext)},
      {"cuCtxGetCurrent", entry(currentContext)},
      {"cuCtxSetCurrent", entry(setCurrentContext)},
      {"cuGetErrorName", entry(errorText)},
      {"cuGetErrorString", entry(errorText)},
      {"cuMemGetAddressRange", entry(addressRange)},
      {"cuFuncLoad", entry(loadFunction)},
      {"cuLibraryLoadData", entry(loadLibrary)},
      {"cuLibraryGetKernel", entry(kernelOfLibrary)},
      {"cuKernelGetFunction", entry(functionOfKernel)},
      {"cuOccupancyMaxActiveBlocksPerMultiprocessor", entry(occupancy)},
      {"cuLaunchKernel", entry(launchKernel)},
      {"cuStreamWaitValue32", entry(waitForValue<cuuint32_t>)},
      {"cuStreamWaitValue64", entry(waitForValue<cuuint64_t>)},
      {"cuStreamWriteValue32", entry(writeValue<cuuint32_t>)},
      {"cuStreamWriteValue64", entry(writeValue<cuuint64_t>)},
  };
  const auto found = calls.find(name);
  return found == calls.end() ? nullptr : found->second;
}

}  // namespace emulated

// torch asks for many names and calls few of them, so each is found; what is not emulated refuses when it is called.
extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** call, unsigned, unsigned long long,
                                                        cudaDriverEntryPointQueryResult* result) {
  EMULATED_QUERY("cudaGetDriverEntryPointByVersion");
  *call = emulated::driverCall(name);
  if (*call == nullptr) *call = refusalOf(name);
  if (result != nullptr) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
