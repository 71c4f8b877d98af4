// What a sparse all-reduce finds out before its rows can travel: how many rows each rank has, then which. Both are
// all-reduces of their own, in which every rank fills in its part. Afterwards all ranks know the rows of the call, in
// the order of their keys, and who contributes to which.
// Holder of the loop's role only, but for the constructor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/call.h"
#include "exchange/sparse_rows.h"
#include "plan/topology.h"

namespace fairring {

class SparseCall {
 public:
  SparseCall(SparseOperand operand, int rank, int world);

  Operand counts();   // to be summed first
  Operand indices();  // then these
  // And then the values: of which rows, and where their sums are to be.
  std::shared_ptr<const SparseRows> rows(const Topology& topology) const;
  Operand values(const SparseRows& rows) const;

 private:
  bool asBits() const;
  std::vector<std::vector<std::uint64_t>> keysOfAll() const;
  std::uint64_t wordsOfBits() const { return (operand_.keysBelow + 63) / 64; }

  const SparseOperand operand_;
  const std::size_t rank_;
  std::vector<std::uint64_t> counts_;   // by rank
  std::vector<std::uint64_t> indices_;  // keys by rank, 4 or 8 bytes each, or a bit for each possible key by rank
};

}  // namespace fairring
