// The part of one tensor that lies in a slice. The tensors of a call are laid end to end, each at a multiple of its
// element's size, and slices and shards are cut on multiples of 64 bytes. So no cut splits an element, and tensors of
// any dtypes can share a slice. Values and pure functions; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <vector>

#include "kernels/reduce.h"
#include "plan/layout.h"

namespace fairring {

struct Portion {
  std::uint64_t begin = 0;  // its first byte in the slice
  std::uint64_t elements = 0;
  // Its first element in this rank's tensors: its source, and the place of the result, which may be the same. Null if
  // there is none, because it is another rank's block, or this rank refused the call.
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  Reduction reduction;       // of the whole call
  std::uint32_t tensor = 0;  // which of the call's tensors: each is one piece of users' memory

  std::uint64_t end() const { return begin + elements * bytesOf(reduction.dtype); }
};

// The part of it that lies in this range of bytes; it has no elements if the range is empty.
Portion clipped(Portion portion, const Range& bytes);

// The parts of the portions, which are in ascending order, that lie in this range of bytes: a view of their memory.
inline auto within(std::span<const Portion> portions, const Range& bytes) {
  const auto first = std::ranges::upper_bound(portions, bytes.begin, {}, &Portion::end);
  const auto last = std::ranges::lower_bound(first, portions.end(), bytes.end, {}, &Portion::begin);
  return std::ranges::subrange(first, last) | std::views::filter(&Portion::elements) |
         std::views::transform([bytes](const Portion& portion) { return clipped(portion, bytes); });
}

// The same, listed; adjacent portions with the same reduction are merged. Without their users' memory.
std::vector<Portion> joinedWithin(std::span<const Portion> portions, const Range& bytes);

}  // namespace fairring
