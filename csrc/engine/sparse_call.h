// What a sparse all-reduce sends before its rows, and what its rows are sent as (KeyForm). Counts and keys are
// all-reduces of their own, in which every rank fills in its part; few keys travel along with the counts. Then all
// ranks know the rows of the call, in the order of their keys, and, where each rank's keys were sent, who contributes
// to which.
// Owner of the loop's progress only, but for the constructor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/call.h"
#include "exchange/row_set.h"
#include "exchange/sparse_rows.h"
#include "kernels/key_bits.h"
#include "plan/planner.h"
#include "plan/topology.h"

namespace fairring {

class SparseCall {
 public:
  SparseCall(SparseOperand operand, int rank, int world);

  RowSpace space() const { return {operand_.keysBelow, operand_.rowBytes()}; }

  Operand counts();  // to be summed first, with the keys of ranks that have few
  std::vector<std::uint64_t> rowsByRank() const;
  bool hasKeys() const;        // of all ranks, already
  Operand keys(KeyForm form);  // else to be summed next
  bool isBlock() const { return form_ == KeyForm::BitsOfAll; }
  // Then the values: each rank's rows alone, where its keys are known,
  std::shared_ptr<const SparseRows> rows(const Topology& topology) const;
  Operand values(const SparseRows& rows) const;
  // or all that somebody has, as a block in which this rank's are laid out among zeros, stretch by stretch.
  Operand block();
  void layOut(const Range& blockBytes) const;

 private:
  std::uint64_t keysBesideCount() const;
  std::uint64_t rowsBefore(std::size_t rank) const;  // that the ranks below it have
  void writeOwnKeys(std::byte* to) const;
  KeysByRank keysByRank() const;
  Operand resultFor(const std::vector<std::uint64_t>& keys) const;

  const SparseOperand operand_;
  const std::size_t rank_;
  const std::size_t world_;
  const std::size_t slotWords_;  // of a rank's count and the keys beside it
  KeyForm form_ = KeyForm::Lists;
  std::vector<std::uint64_t> counts_;  // slots by rank
  std::vector<std::uint64_t> keys_;    // lists by rank, 4 or 8 bytes each, or bits, as the form says
  KeyBits own_;                        // this rank's of a block
  RowSet inBlock_;                     // of this rank's rows
  std::byte* block_ = nullptr;         // none where this rank refused
};

}  // namespace fairring
