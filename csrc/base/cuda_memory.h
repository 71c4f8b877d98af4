// Memory that the CUDA device and this process share, or the device's own. It is given back when its last holder drops
// it, on any thread. All that takes memory throws OutOfMemory if there is not enough of it, and may wait until the
// device is idle; so may giving the memory back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace fairring {

std::shared_ptr<std::byte> pinnedMemory(std::uint64_t bytes, int device);  // of the host; zeroed; mapped everywhere
std::shared_ptr<std::byte> deviceMemory(std::uint64_t bytes, int device);
// Keeps what its users drop for the next one who wants so much of it, until the end of the pool: a thread that gives
// memory back may wait until the device is idle, and all others with it. Memory that is dropped may be another user's
// at once, so nothing that is enqueued may use it any more. Any thread.
class CudaMemoryPool {
 public:
  explicit CudaMemoryPool(int device) : device_(device) {}
  std::shared_ptr<std::byte> pinned(std::uint64_t bytes);  // zeroed
  std::shared_ptr<std::byte> device(std::uint64_t bytes);

 private:
  using Memory = std::shared_ptr<std::byte>;
  struct Kept {
    std::mutex mutex;
    std::multimap<std::uint64_t, Memory> bySize;
    Memory take(std::uint64_t bytes);
  };
  static Memory keptAtEnd(Memory memory, std::uint64_t bytes, const std::shared_ptr<Kept>& kept);

  const int device_;
  const std::shared_ptr<Kept> pinned_ = std::make_shared<Kept>();
  const std::shared_ptr<Kept> ofDevice_ = std::make_shared<Kept>();
};

// Called if a device has no memory left, which is then tried once more: whoever caches memory lets it go. Once for the
// process, before any thread takes memory.
void whenDeviceIsFull(void (*letCachesGo)());

}  // namespace fairring
