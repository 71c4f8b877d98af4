// What the ranks of an all-to-all tell each other before their bytes travel: how many each has for each. Two
// all-gathers: of one number for each rank, where all its cells are of one size; and, where some rank's are not, of
// every rank's sizes. So all ranks know all sizes, and cut their slices alike. Owner of the loop's progress only, but
// for the constructor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "engine/call.h"
#include "exchange/cells.h"
#include "plan/cell_sizes.h"

namespace fairring {

class AllToAllCall {
 public:
  AllToAllCall(std::vector<CellPair> cells, int rank);

  BlockRows evenSizes();  // to be gathered first
  bool isEven() const;    // then: all that is to be known is known
  BlockRows sizes();      // else to be gathered next

  CellSizes cellSizes() const;
  // The error if another rank has not as much for this one as this one's user has room for; empty: all have.
  Error unfit() const;
  CellMemory memory(bool isRefused) const;

 private:
  const std::vector<CellPair> cells_;
  const std::size_t rank_;
  std::vector<std::uint64_t> even_;   // by rank
  std::vector<std::uint64_t> sizes_;  // by rank, then by the rank that they are for
};

}  // namespace fairring
