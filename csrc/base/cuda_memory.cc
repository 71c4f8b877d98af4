#include "base/cuda_memory.h"

#include <cstring>
#include <new>
#include <utility>

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

CudaMemoryPool::Memory CudaMemoryPool::Kept::take(std::uint64_t bytes) {
  const std::lock_guard lock(mutex);
  const auto found = bySize.find(bytes);
  return found == bySize.end() ? nullptr : std::move(bySize.extract(found).mapped());
}

// The pool's end ends what it keeps, and what comes later ends at once.
CudaMemoryPool::Memory CudaMemoryPool::keptAtEnd(Memory memory, std::uint64_t bytes,
                                                 const std::shared_ptr<Kept>& kept) {
  std::byte* const begin = memory.get();
  return {begin, [memory = std::move(memory), bytes, pool = std::weak_ptr(kept)](std::byte*) mutable {
            const std::shared_ptr<Kept> kept = pool.lock();
            if (!kept) return;
            try {
              const std::lock_guard lock(kept->mutex);
              kept->bySize.emplace(bytes, memory);
            } catch (const std::bad_alloc&) {
              return;  // then it ends now
            }
          }};
}

std::shared_ptr<std::byte> CudaMemoryPool::pinned(std::uint64_t bytes) {
  Memory memory = pinned_->take(bytes);
  if (memory) {
    std::memset(memory.get(), 0, bytes);
  } else {
    memory = pinnedMemory(bytes, device_);
  }
  return keptAtEnd(std::move(memory), bytes, pinned_);
}

std::shared_ptr<std::byte> CudaMemoryPool::device(std::uint64_t bytes) {
  Memory memory = ofDevice_->take(bytes);
  return keptAtEnd(memory ? std::move(memory) : deviceMemory(bytes, device_), bytes, ofDevice_);
}

}  // namespace fairring
