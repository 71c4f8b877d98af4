// A copy by streaming stores, which go past this processor's caches. A reader on another die or socket finds the bytes
// in memory several times sooner than in the cache of their writer. Where there are no such stores it is memcpy. Pure:
// any thread, no state.
#pragma once

#include <cstddef>

namespace fairring {

// The arrays do not overlap. Whoever sees a later release store of this thread's sees the copy, as after memcpy.
void streamCopy(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace fairring
