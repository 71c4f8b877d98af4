// Sums of a table's entries by way of the whole table, where rows are of few elements and many of them are there: each
// entry is added to its row's place, so no order of entries is looked for. Of one row they are added as they stand, to
// the bits of entry_sums.h, but for the payloads of NaNs.
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
  std::span<const std::int64_t> keys;  // each entry's, all of them below keysBelow
  const std::byte* values = nullptr;   // the entries' rows, packed
  std::uint64_t keysBelow = 0;
  std::uint64_t rowElements = 0;
};

// The keys that are there, ascending. Their sums are written, packed, to the memory that is given for so many rows.
std::vector<std::uint64_t> sumByTable(DType dtype, const TableEntries& entries,
                                      const std::function<std::byte*(std::uint64_t rows)>& memoryFor);

}  // namespace fairring
