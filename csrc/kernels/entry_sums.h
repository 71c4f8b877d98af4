// Sums of the entries of a table: rows of few elements, of which each sum has some, in one pass over all. Where rows
// are long, reduce() takes them one by one. Same order, same bits.
// Pure: any thread, no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/reduce.h"

namespace fairring {

struct EntrySums {
  std::byte* out = nullptr;                // the sums, packed
  const std::byte* values = nullptr;       // the entries' rows, packed
  std::span<const std::uint32_t> entries;  // those of the first sum in the order of summation, then those of the next
  std::span<const std::uint32_t> begins;   // where each sum's begin there, and the end
  std::uint64_t rowElements = 0;
};

// Each has at least one.
void sumEntries(DType dtype, const EntrySums& sums);

}  // namespace fairring
