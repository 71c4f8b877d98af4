// An all-to-all. Before their bytes travel, its ranks tell each other how many each has for each, by two all-gathers:
// of one number for each rank, where all its cells are of one size; and, where some rank's are not, of every rank's
// sizes. So all ranks know all sizes, and cut their slices alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/call_in_parts.h"
#include "exchange/cells.h"
#include "plan/cell_sizes.h"

namespace fairring {

// One cell: what this rank sends to another one, and where it puts what that one sends. Both stay valid until the call
// is done. Null: refused.
struct CellPair {
  const void* from = nullptr;
  std::uint64_t fromBytes = 0;
  void* to = nullptr;
  std::uint64_t toBytes = 0;
};

class AllToAllCall final : public CallInParts {
 public:
  AllToAllCall(std::vector<CellPair> cells, int rank);  // by rank

  std::uint64_t mostBytes() const override;
  CallPart first(Slicing& slicing) override;
  std::optional<CallPart> second(Slicing& slicing) override;
  CallPart last(Slicing& slicing, Error& refused) override;

 private:
  // The error if another rank has not as much for this one as this one's user has room for; empty: all have.
  Error unfit(const CellSizes& sizes) const;
  CellMemory memory(bool isRefused) const;

  const std::vector<CellPair> cells_;
  const std::size_t rank_;
  std::vector<std::uint64_t> even_;   // by rank
  std::vector<std::uint64_t> sizes_;  // by rank, then by the rank that they are for; none if all ranks' are even
};

}  // namespace fairring
