// A sparse all-reduce: what its ranks send before their rows, and what the rows are sent as (KeyForm). Counts and keys
// are all-reduces of their own, in which every rank fills in its part; few keys travel along with the counts. Then all
// ranks know the rows of the call, in the order of their keys, and, where each rank's keys were sent, who contributes
// to which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/call_in_parts.h"
#include "exchange/row_set.h"
#include "exchange/sparse_rows.h"
#include "kernels/key_bits.h"
#include "kernels/reduce.h"
#include "plan/planner.h"
#include "plan/topology.h"

namespace fairring {

// Some rows of a large tensor; what is not there counts as zeros, but what nobody has stays away.
struct SparseOperand {
  std::span<const std::uint64_t> keys;  // of the rows that this rank has; they ascend, and stay until the call is done
  std::uint64_t keysBelow = 0;          // the tensor's rows; the same on all ranks, as all below
  const std::byte* values = nullptr;    // the rows, packed; they stay valid until the call is done
  std::uint64_t rowElements = 0;
  Reduction reduction;
  // On the loop: memory for the sums of these rows, valid until the call is done. None where this rank refused.
  std::function<std::byte*(const std::vector<std::uint64_t>& keys)> result;

  std::uint64_t rowBytes() const { return rowElements * bytesOf(reduction.dtype); }
};

class SparseCall final : public CallInParts, public std::enable_shared_from_this<SparseCall> {
 public:
  SparseCall(SparseOperand operand, int rank, int world);

  // It depends on the rows of all ranks.
  std::uint64_t mostBytes() const override { return UINT64_MAX; }
  // The counts, with the keys of ranks that have few.
  CallPart first(Slicing& slicing) override;
  // The keys, unless the first part has told all.
  std::optional<CallPart> second(Slicing& slicing) override;
  // The values: each rank's rows alone, where its keys are known, or all that somebody has, as a block in which this
  // rank's are laid out among zeros.
  CallPart last(Slicing& slicing, Error& refused) override;

  // Lays out this stretch of the block.
  void layOut(const Range& blockBytes) const;

 private:
  RowSpace space() const { return {operand_.keysBelow, operand_.rowBytes()}; }
  std::vector<std::uint64_t> rowsByRank() const;
  bool hasKeys() const;  // of all ranks, with the counts
  Operand keys(KeyForm form);
  CallPart rows(Slicing& slicing) const;
  CallPart block(Slicing& slicing);
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
