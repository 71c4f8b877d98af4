// Sums of a table's entries by way of the whole table, for rows of few elements if many of them are there: each entry
// is added to its row's place, so entries need not be sorted. The entries of a row are added in their order, to the
// bits of entry_sums.h, except for the payloads of NaNs.
// Pure: any thread, no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/reduce.h"

namespace fairring {

struct TableEntries {
  std::span<const std::int64_t> keys;  // each entry's key, below keysBelow
  const std::byte* values = nullptr;   // the entries' rows, packed
  std::uint64_t keysBelow = 0;
  std::uint64_t rowElements = 0;
};

// Returns the keys that are there, ascending. Writes their sums, packed, to memory from a function of their number.
std::vector<std::uint64_t> sumByTable(DType dtype, const TableEntries& entries,
                                      const std::function<std::byte*(std::uint64_t rows)>& memoryFor);

}  // namespace fairring
