// The entries of a sparse tensor grouped by row: each row once, in the order of their keys, and the entries of a row in
// their order in the tensor. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fairring {

struct EntryOrder {
  std::vector<std::uint64_t> keys;     // of the rows, each once, ascending
  std::vector<std::uint32_t> entries;  // the entries of the first row, then those of the next
  std::vector<std::uint32_t> begins;   // where each row's entries begin, and the end

  // keys: of the entries, all of them below keysBelow. Throws c10::ValueError if there are 2^32 of them or more.
  static EntryOrder of(std::span<const std::int64_t> keys, std::uint64_t keysBelow);
};

}  // namespace fairring
