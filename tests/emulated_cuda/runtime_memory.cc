// The part of the CUDA runtime for memory and copies. The target holds poison from a write's beginning to its end.
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "calls.h"
#include "emulated.h"
#include "pinned.h"
#include "settings.h"

using emulated::Devices;
using emulated::failed;
using emulated::hostThread;
using emulated::kPoison;

namespace {

enum class Place { Device, Pinned, Pageable };

Place placeOf(const void* address) {
  if (!emulated::isReachable(address)) return Place::Pageable;
  return emulated::pinnedBytesFrom(address) > 0 ? Place::Pinned : Place::Device;
}

void write(void* to, const void* from, std::size_t bytes) {
  const auto* source = static_cast<const std::byte*>(from);
  const auto* target = static_cast<const std::byte*>(to);
  const bool overlap = target < source + bytes && source < target + bytes;
  if (!overlap) std::memset(to, kPoison, bytes);
  emulated::pause();
  std::memmove(to, from, bytes);
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaStream_t handle, bool isBlocking) {
  if (bytes == 0) return cudaSuccess;
  void* target = emulated::reach(to, bytes, "a copy's target");
  const void* source = emulated::reach(from, bytes, "a copy's source");
  const bool isStaged = placeOf(from) == Place::Pageable && !isBlocking;
  const bool hostWaits = isBlocking || placeOf(to) == Place::Pageable;
  Devices& devices = Devices::all();
  Devices::Lock lock = devices.lock();
  emulated::Stream* stream = devices.stream(handle);
  if (isStaged && !hostWaits) {
    const auto* begin = static_cast<const std::byte*>(source);
    const auto staged = std::make_shared<std::vector<std::byte>>(begin, begin + bytes);
    devices.enqueue(stream, {"a copy of staged memory", nullptr, [=] { write(target, staged->data(), bytes); }});
    return cudaSuccess;
  }
  devices.enqueue(stream, {"a copy", nullptr, [=] { write(target, source, bytes); }});
  if (hostWaits) devices.awaitStream(lock, stream);
  return cudaSuccess;
}

std::size_t pages(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** address, size_t bytes) {
  EMULATED_CALL("cudaMalloc");
  Devices& devices = Devices::all();
  Devices::Lock lock = devices.lock();
  EMULATED_UNCAPTURED("cudaMalloc");
  const int device = hostThread().device;
  devices.use(device);
  if (emulated::settings().allocationsWait) emulated::awaitInDriver(lock, device);
  *address = bytes == 0 ? nullptr : devices.use(device).memory->allocate(bytes);
  return bytes == 0 || *address != nullptr ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* address) {
  EMULATED_CALL("cudaFree");
  Devices& devices = Devices::all();
  Devices::Lock lock = devices.lock();
  if (address == nullptr) {
    devices.use(hostThread().device);
    return cudaSuccess;
  }
  EMULATED_UNCAPTURED("cudaFree");
  int device = 0;
  emulated::Device* holder = devices.holderOf(address, &device);
  if (holder == nullptr) emulated::fatal("cudaFree of %p, which no device has allocated", address);
  emulated::awaitInDriver(lock, device);
  if (!holder->memory->free(address)) emulated::fatal("cudaFree of %p, which is no allocation's beginning", address);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  EMULATED_CALL("cudaMemGetInfo");
  const Devices::Lock lock = Devices::all().lock();
  *total = emulated::settings().deviceBytes;
  *free = Devices::all().use(hostThread().device).memory->freeBytes();
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  EMULATED_CALL("cudaHostAlloc");
  {
    Devices& devices = Devices::all();
    Devices::Lock lock = devices.lock();
    EMULATED_UNCAPTURED("cudaHostAlloc");
    devices.use(hostThread().device);
    if (emulated::settings().allocationsWait) emulated::awaitInDriver(lock, hostThread().device);
  }
  *address = mmap(nullptr, pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*address == MAP_FAILED) return failed(cudaErrorMemoryAllocation);
  std::memset(*address, kPoison, bytes);
  emulated::addPinned(*address, bytes);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** address, size_t bytes) { return cudaHostAlloc(address, bytes, 0); }

cudaError_t cudaFreeHost(void* address) {
  EMULATED_CALL("cudaFreeHost");
  if (address == nullptr) return cudaSuccess;
  {
    Devices& devices = Devices::all();
    Devices::Lock lock = devices.lock();
    for (int device = 0; device < devices.count(); ++device) emulated::awaitInDriver(lock, device);
  }
  const std::size_t bytes = emulated::removePinned(address);
  if (bytes == 0) return failed(cudaErrorInvalidValue);
  munmap(address, pages(bytes));
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned) {
  EMULATED_CALL("cudaHostRegister");
  emulated::addPinned(address, bytes);
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* address) {
  EMULATED_CALL("cudaHostUnregister");
  return emulated::removePinned(address) > 0 ? cudaSuccess : failed(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  EMULATED_QUERY("cudaPointerGetAttributes");
  *attributes = {};
  auto* same = const_cast<void*>(address);
  const Devices::Lock lock = Devices::all().lock();
  if (Devices::all().holderOf(address, &attributes->device) != nullptr) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->devicePointer = same;
  } else if (emulated::pinnedBytesFrom(address) > 0) {
    attributes->type = cudaMemoryTypeHost;
    attributes->device = hostThread().device;
    attributes->devicePointer = attributes->hostPointer = same;
  } else {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = cudaInvalidDeviceId;
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  EMULATED_CALL("cudaMemcpyAsync");
  return copy(to, from, bytes, stream, false);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  EMULATED_CALL("cudaMemcpy");
  return copy(to, from, bytes, nullptr, true);
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t toPitch, const void* from, size_t fromPitch, size_t width, size_t height,
                              cudaMemcpyKind, cudaStream_t stream) {
  // As where the rows lie in several allocations.
  if (emulated::isToFail("cudaMemcpy2DAsync", __builtin_return_address(0))) {
    return emulated::failed(cudaErrorInvalidValue);
  }
  EMULATED_CALL("cudaMemcpy2DAsync");
  if (width > toPitch || width > fromPitch) return failed(cudaErrorInvalidPitchValue);
  if (width == 0 || height == 0) return cudaSuccess;
  // All rows have to lie in one allocation.
  auto* target = static_cast<std::byte*>(emulated::reach(to, (height - 1) * toPitch + width, "a copy's target"));
  const auto* source =
      static_cast<const std::byte*>(emulated::reach(from, (height - 1) * fromPitch + width, "a copy's source"));
  emulated::enqueue(stream, "cudaMemcpy2DAsync", [=] {
    for (std::size_t row = 0; row < height; ++row) std::memset(target + row * toPitch, kPoison, width);
    emulated::pause();
    for (std::size_t row = 0; row < height; ++row) std::memcpy(target + row * toPitch, source + row * fromPitch, width);
  });
  return cudaSuccess;
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  EMULATED_CALL("cudaMemcpyPeerAsync");
  return copy(to, from, bytes, stream, false);
}

cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream) {
  EMULATED_CALL("cudaMemsetAsync");
  if (bytes == 0) return cudaSuccess;
  void* target = emulated::reach(address, bytes, "cudaMemsetAsync");
  emulated::enqueue(stream, "cudaMemsetAsync", [=] { std::memset(target, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemset(void* address, int value, size_t bytes) {
  return cudaMemsetAsync(address, value, bytes, nullptr);
}

}  // extern "C"
