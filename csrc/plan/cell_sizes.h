// How many bytes each rank of an all-to-all has for each other one: a cell for every pair. Value; immutable.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "plan/layout.h"

namespace fairring {

class CellSizes {
 public:
  CellSizes() = default;
  // One size for each rank, of all its cells; or one for each cell, those of a rank side by side.
  CellSizes(int world, std::vector<std::uint64_t> bytes)
      : world_(static_cast<std::size_t>(world)), bytes_(std::move(bytes)) {}

  std::uint64_t of(int from, int to) const {
    const auto row = static_cast<std::size_t>(from);
    return bytes_.size() == world_ ? bytes_[row] : bytes_[row * world_ + static_cast<std::size_t>(to)];
  }
  // What of the cell lies in this stretch of every cell.
  std::uint64_t within(const Range& stretch, int from, int to) const {
    return std::clamp(of(from, to), stretch.begin, stretch.end) - stretch.begin;
  }
  std::uint64_t largest() const { return bytes_.empty() ? 0 : std::ranges::max(bytes_); }

 private:
  std::size_t world_ = 0;
  std::vector<std::uint64_t> bytes_;
};

}  // namespace fairring
