// What a sparse all-reduce sends before its rows, and what its rows are sent as (KeyForm). Counts and keys are
// all-reduces of their own, in which every rank fills in its part; then all ranks know the rows of the call, in the
// order of their keys, and, where each rank's keys were sent, who contributes to which.
// Holder of the loop's role only, but for the constructor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/call.h"
#include "exchange/sparse_rows.h"
#include "plan/planner.h"
#include "plan/topology.h"

namespace fairring {

class SparseCall {
 public:
  SparseCall(SparseOperand operand, int rank, int world);

  RowSpace space() const { return {operand_.keysBelow, operand_.rowBytes()}; }

  Operand counts();  // to be summed first
  const std::vector<std::uint64_t>& rowsByRank() const { return counts_; }
  Operand keys(KeyForm form);  // then these
  bool isBlock() const { return form_ == KeyForm::BitsOfAll; }
  // Then the values: each rank's rows alone, where its keys are known,
  std::shared_ptr<const SparseRows> rows(const Topology& topology) const;
  Operand values(const SparseRows& rows) const;
  // or all that somebody has, as a block in which this rank's are laid out among zeros, stretch by stretch.
  Operand block();
  void layOut(const Range& blockBytes) const;

 private:
  std::vector<std::vector<std::uint64_t>> keysOfAll() const;
  Operand resultFor(const std::vector<std::uint64_t>& keys) const;

  const SparseOperand operand_;
  const std::size_t rank_;
  KeyForm form_ = KeyForm::Lists;
  std::vector<std::uint64_t> counts_;  // by rank
  std::vector<std::uint64_t> keys_;    // lists by rank, 4 or 8 bytes each, or bits, as the form says
  std::vector<std::uint64_t> places_;  // of this rank's rows in the block
  std::byte* block_ = nullptr;         // none where this rank refused
};

}  // namespace fairring
