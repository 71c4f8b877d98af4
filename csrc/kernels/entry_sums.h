// Sums of the entries of a table: rows of few elements, each sum with some of the entries, in one pass
// over all. For long rows, reduce() takes them one by one. Same order, same bits. Pure: any thread, no
// state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/reduce.h"

namespace fairring {

struct EntrySums {
  std::byte* out = nullptr;                // the sums, packed
  const std::byte* values = nullptr;       // the entries' rows, packed
  std::span<const std::uint32_t> entries;  // in the order of summation: those of the first sum, then of the next
  std::span<const std::uint32_t> begins;   // where each sum's entries begin, and the end
  std::uint64_t rowElements = 0;
};

// Each sum has at least one entry.
void sumEntries(DType dtype, const EntrySums& sums);

}  // namespace fairring
