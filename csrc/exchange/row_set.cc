#include "exchange/row_set.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

namespace fairring {

RowSet::RowSet(KeyBits rows, std::uint64_t rowBytes) : rows_(std::move(rows)), rowBytes_(rowBytes) {
  rowsBefore_.reserve(rows_.size() + 1);
  std::uint64_t before = 0;
  rowsBefore_.push_back(before);
  for (const std::uint64_t word : rows_)
    rowsBefore_.push_back(before += static_cast<std::uint64_t>(std::popcount(word)));
}

std::uint64_t RowSet::before(std::uint64_t at) const {
  if (rowBytes_ == 0) return 0;
  const std::uint64_t row = at / rowBytes_;
  const std::uint64_t word = row / 64;
  if (word >= rows_.size()) return rowsBefore_.back() * rowBytes_;
  const std::uint64_t below = rows_[word] & ((1ULL << (row % 64)) - 1);
  const std::uint64_t rows = rowsBefore_[word] + static_cast<std::uint64_t>(std::popcount(below));
  return rows * rowBytes_ + (has(row) ? at % rowBytes_ : 0);
}

RowSet::Stretch RowSet::stretchFrom(std::uint64_t row) const {
  std::uint64_t word = row / 64;
  if (word >= rows_.size()) return {false, UINT64_MAX};
  const std::uint64_t bits = rows_[word] >> (row % 64);
  const bool here = has(row);
  const int same = here ? std::countr_one(bits) : std::countr_zero(bits);
  std::uint64_t end = std::min(row + static_cast<std::uint64_t>(same), (word + 1) * 64);
  if (end < (word + 1) * 64) return {here, end};
  for (++word; word < rows_.size() && rows_[word] == (here ? ~0ULL : 0); ++word) end += 64;
  return {here, end};
}

}  // namespace fairring
