// Memory that the CUDA device and this process share, or the device's own. It is given back when its last holder drops
// it, on any thread. Both functions throw OutOfMemory if there is not enough of it, and may
// wait until the device is idle; so may giving the memory back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace fairring {

std::shared_ptr<std::byte> pinnedMemory(std::uint64_t bytes, int device);  // of the host; zeroed; mapped everywhere
std::shared_ptr<std::byte> deviceMemory(std::uint64_t bytes, int device);
// Called if a device has no memory left, which is then tried once more: whoever caches memory lets it go. Once for the
// process, before any thread takes memory.
void whenDeviceIsFull(void (*letCachesGo)());

}  // namespace fairring
