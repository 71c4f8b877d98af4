// Slices that have a block for each rank, of which a reduce-scatter leaves each rank the sum of its own, and an
// all-gather brings each rank's to all.
//
// In an all-reduce every rank ends with shards of a slice, and no two of them with the same. A block takes the place of
// the first of its rank's: it stands there in the slice, and takes the way that this point of the slice takes through
// the levels. So blocks are reduced by the same ranks, over the same connections and in the same order as an
// all-reduce, whatever the machines look like, and a rank's own block is what it ends with.
// Pure arithmetic; immutable.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/layout.h"
#include "plan/topology.h"

namespace fairring {

class Blocks {
 public:
  explicit Blocks(const Topology& topology);

  // Ranks, in the order in which their blocks stand in a slice. Equal machines: by local rank, then by machine.
  const std::vector<int>& order() const { return order_; }

  // A slice as one rank sees it, in bytes. Each block, of so many bytes by rank, begins on a grain, which pads the one
  // before.
  Layout layout(const Topology& topology, int rank, std::span<const std::uint64_t> bytesByRank) const;

  // A slice of one element for each block.
  Layout counts(const Topology& topology, int rank) const;

  // Cells of an all-to-all that a rank has in staging at most: what it has for all, and what it gets and holds at each
  // level.
  std::uint64_t mostCells() const { return mostCells_; }

  // Blocks that come, as contributions, to the rank to which most do, in the reduce-scatters above the machine.
  std::uint64_t mostReceived() const { return mostReceived_; }

 private:
  std::uint64_t countBefore(std::uint64_t unit) const;  // of blocks

  std::vector<int> order_;
  std::vector<std::uint64_t> units_;  // of each block, in that order
  std::uint64_t mostReceived_ = 0;
  std::uint64_t mostCells_ = 0;
};

// Each block's first byte, in order of the slice, and the end of the last.
std::vector<std::uint64_t> blockOffsets(const Blocks& blocks, std::span<const std::uint64_t> bytesByRank);

}  // namespace fairring
