// The tensors of a call as rows of bytes, one behind the other in each: a call of blocks has a row for each rank,
// others have one. Rows are cut into slices as a single tensor would be: small tensors share a slice, large ones take
// several. Which ones share follows from the call alone, so it is the same on all ranks. Immutable; any thread.
#pragma once

#include <span>
#include <vector>

#include "engine/call.h"
#include "exchange/portion.h"

namespace fairring {

class Packing {
 public:
  explicit Packing(const std::vector<Operand>& operands);
  static Packing ofBlocks(const BlockRows& rows);
  static Packing of(const Call& call);  // whose tensors are dense

  std::uint64_t bytes() const { return bytes_; }  // of the longest row; a multiple of the largest element
  // How many bytes of each row lie in the range.
  std::vector<std::uint64_t> bytesOfRows(const Range& bytes) const;
  // The portions of a slice that is cut from a single row, on multiples of 64 bytes.
  std::vector<Portion> cut(const Range& bytes) const;
  // The portions of a slice that has the same stretch of these rows, in this order, at these places.
  std::vector<Portion> cut(const Range& bytes, std::span<const int> rows, std::span<const std::uint64_t> places) const;

 private:
  struct Row {
    std::vector<Portion> portions;
    std::uint64_t bytes = 0;
    std::size_t largestElement = 1;

    void add(Portion portion);
  };

  void end();  // of all rows

  std::vector<Row> rows_;
  std::uint64_t bytes_ = 0;
};

}  // namespace fairring
