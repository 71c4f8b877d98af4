// Memory that CUDA's device and this process share, or the device alone, given back when its last holder lets go of it,
// on any thread. Only in builds with CUDA. Both throw Failure where there is not enough, and may wait until the device
// is idle, as giving back may.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace fairring {

std::shared_ptr<std::byte> pinnedMemory(std::uint64_t bytes, int device);  // of the host; zeroed; mapped everywhere
std::shared_ptr<std::byte> deviceMemory(std::uint64_t bytes, int device);

}  // namespace fairring
