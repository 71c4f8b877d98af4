// Which entries of a sparse tensor are of which row: each row once, in the order of their keys, and the entries of a
// row in the order in which they stand in the tensor. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fairring {

struct EntryOrder {
  std::vector<std::uint64_t> keys;     // of the rows, each once, ascending
  std::vector<std::uint32_t> entries;  // those of the first row, then those of the next
  std::vector<std::uint32_t> begins;   // where each row's begin there, and the end

  // keys: of the entries, all of them below keysBelow. Throws c10::ValueError where there are 2^32 of them or more.
  static EntryOrder of(std::span<const std::int64_t> keys, std::uint64_t keysBelow);
};

}  // namespace fairring
