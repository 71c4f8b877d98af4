#include "base/cuda_memory.h"

#include <cstring>

#include "base/cuda_error.h"
#include "base/cuda_runtime.h"
#include "base/cuda_stream.h"
#include "base/out_of_memory.h"

namespace fairring {
namespace {

void (*cachesLetGo)() = nullptr;

cudaError_t allocate(void** memory, std::uint64_t bytes) {
  const cudaError_t result = cudaMalloc(memory, bytes);
  if (result != cudaErrorMemoryAllocation || cachesLetGo == nullptr) return result;
  forget(result);
  cachesLetGo();
  return cudaMalloc(memory, bytes);
}

}  // namespace

void whenDeviceIsFull(void (*letCachesGo)()) { cachesLetGo = letCachesGo; }

std::shared_ptr<std::byte> pinnedMemory(std::uint64_t bytes, int device) {
  const CurrentDevice current(device);
  const CaptureUnheeded unheeded;
  void* memory = nullptr;
  const cudaError_t result = cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
  if (result != cudaSuccess) {
    forget(result);
    throw OutOfMemory(makeError(ErrorKind::System, bytes,
                                " B of pinned host memory: ", cudaFailure(result, "cudaHostAlloc", device).text(),
                                "; lower FAIRRING_TOTAL_MEMORY or raise ulimit -l"));
  }
  std::memset(memory, 0, bytes);
  return {static_cast<std::byte*>(memory), [device](std::byte* of) {
            const CaptureUnheeded here;
            dropOn(device, [of] { return cudaFreeHost(of); });
          }};
}

std::shared_ptr<std::byte> deviceMemory(std::uint64_t bytes, int device) {
  const CurrentDevice current(device);
  const CaptureUnheeded unheeded;
  void* memory = nullptr;
  const cudaError_t result = allocate(&memory, bytes);
  if (result != cudaSuccess) {
    forget(result);
    throw OutOfMemory(makeError(ErrorKind::System, bytes, " B of device memory: ",
                                cudaFailure(result, "cudaMalloc", device).text(), "; lower FAIRRING_TOTAL_MEMORY"));
  }
  return {static_cast<std::byte*>(memory), [device](std::byte* of) {
            const CaptureUnheeded here;
            dropOn(device, [of] { return cudaFree(of); });
          }};
}

}  // namespace fairring
