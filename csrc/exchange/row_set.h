// The set of a sparse call's rows that one contribution has, as bytes of the call's rows: all ranks' rows together,
// each once, in the order of their keys. Its rows lie packed in memory, end to end, so its length in any range is the
// number of bytes that travel. Immutable; any thread.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "kernels/key_bits.h"
#include "plan/layout.h"

namespace fairring {

class RowSet {
 public:
  struct Stretch {
    bool here;          // whether it has the row,
    std::uint64_t end;  // and the row up to which, at least, the same is true
  };

  RowSet() = default;
  // rows: the i-th bit stands for the call's i-th row.
  RowSet(KeyBits rows, std::uint64_t rowBytes);

  std::uint64_t before(std::uint64_t at) const;  // the bytes that it has before that byte of the call
  std::uint64_t within(const Range& call) const { return before(call.end) - before(call.begin); }
  std::uint64_t bytes() const { return before(UINT64_MAX); }
  std::uint64_t rowBytes() const { return rowBytes_; }
  Stretch stretchFrom(std::uint64_t row) const;

  // Calls visit(row) for each row that it has in that range.
  template <class Visit>
  void eachRow(std::uint64_t from, std::uint64_t below, const Visit& visit) const {
    for (std::uint64_t word = from / 64; word < rows_.size() && word * 64 < below; ++word) {
      std::uint64_t left = rows_[word];
      if (word == from / 64) left &= ~0ULL << (from % 64);
      for (; left != 0; left &= left - 1) {
        const std::uint64_t row = word * 64 + static_cast<std::uint64_t>(std::countr_zero(left));
        if (row >= below) return;
        visit(row);
      }
    }
  }

 private:
  bool has(std::uint64_t row) const { return (rows_[row / 64] >> (row % 64) & 1) != 0; }

  KeyBits rows_;
  std::vector<std::uint64_t> rowsBefore_;  // the word, and in all
  std::uint64_t rowBytes_ = 0;
};

}  // namespace fairring
