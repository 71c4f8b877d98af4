// Memory of the host that devices reach. Any thread; a mutex of its own, taken after that of the devices.
#pragma once

#include <cstddef>

namespace emulated {

void addPinned(void* address, std::size_t bytes);
std::size_t removePinned(void* address);  // its bytes; 0 where it is not the beginning of any
// How many pinned bytes there are from the address on.
std::size_t pinnedBytesFrom(const void* address);

}  // namespace emulated
