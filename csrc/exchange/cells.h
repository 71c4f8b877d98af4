// The cells of an all-to-all on their way. They go down the levels as the contributions to a reduce-scatter do, to the
// same ranks, over the same connections; but where contributions are summed, cells are put side by side. After a level
// a rank holds the cells of all ranks of its group for each rank whose block it would have summed there (blocks.h). So
// after the topmost level it holds all ranks' cells for it.
//
// A slice has the same stretch of every cell. Staging holds, end to end: the image (this rank's cells for all, in the
// order of blocks), the cells that it holds after each level but the topmost, and areas for the cells that its rails
// bring. Pure, except for the memory that it points into. Immutable: a Cells belongs to a call, a CellBody to a slice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "exchange/slice_body.h"
#include "plan/blocks.h"
#include "plan/cell_sizes.h"
#include "plan/topology.h"

namespace fairring {

struct CellMemory {                    // by rank; null if this rank refuses
  std::vector<const std::byte*> from;  // this rank's data for that rank
  std::vector<std::byte*> to;          // the place of that rank's data
};

class Cells {
 public:
  Cells(const Topology& topology, const Blocks& blocks, int rank, CellSizes sizes, CellMemory memory);

 private:
  friend class CellBody;
  struct Arrival {  // what one owner of a rail brings; at level 0, which has one rail, from its image
    int peer;
    std::uint64_t rail;        // its first block
    std::vector<int> targets;  // ranks whose cells this one holds afterwards
    std::vector<int> sources;  // ranks whose cells the peer held before
    std::vector<int> sent;     // targets whose cells go to the peer
  };
  struct Level {
    int level;
    std::vector<int> targets;       // ranks whose cells this one holds afterwards, in the order of blocks
    std::vector<int> sources;       // from these ranks
    std::vector<Arrival> arrivals;  // by rail, then by owner, this rank's own among them
  };

  void addLevel(const Topology& topology, const LevelLayout& layout);

  const int rank_;
  const CellSizes sizes_;
  const CellMemory memory_;
  const std::vector<int> order_;  // of blocks
  std::vector<Level> levels_;
};

class CellBody : public SliceBody {
 public:
  CellBody(std::shared_ptr<const Cells> cells, const Range& stretch);

  std::uint64_t stagingBytes(const Slice&) const override { return end_; }
  // Copies this rank's cells for all ranks into its image.
  Job fill(const Slice& slice, std::size_t step) const override;
  std::uint64_t imageBytes(const Slice& slice, int rank) const override;
  // Collects the cells that this rank holds after level 0.
  Job combine(const Slice& slice, std::size_t step, const PeerImages& images) const override;
  std::uint64_t bytesCombined(const Slice& slice, std::size_t step, int peer) const override;
  // The topmost level has put everything into the tensors.
  std::vector<Copy> deliver(const Slice&, const Range&, const std::byte*) const override { return {}; }
  std::vector<Transfer> transfers(const Slice& slice, std::size_t step) const override;
  // Collects the cells that this rank holds after a level above.
  Job afterReceiving(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const override;

 protected:
  std::uint64_t ownBytes() const { return bytesFor(cells_->rank_); }  // of this rank's cells for all
  std::uint64_t heldBytes(const Step& step) const;                    // of the cells that it holds after the step

 private:
  using Level = Cells::Level;
  using Arrival = Cells::Arrival;

  std::size_t placeOf(const Step& step) const;  // of its level in cells_->levels_
  std::uint64_t bytesFor(int rank) const;       // of that rank's image
  std::uint64_t cell(int from, int to) const { return cells_->sizes_.within(stretch_, from, to); }
  std::uint64_t bytesOf(int target, const std::vector<int>& sources) const;
  std::uint64_t bytesOf(const std::vector<int>& targets, const std::vector<int>& sources) const;
  // The place where the cells held for these ranks begin, before that level.
  std::uint64_t heldBefore(std::size_t place, const std::vector<int>& targets) const;
  class Placement;

  const std::shared_ptr<const Cells> cells_;
  const Range stretch_;
  std::vector<std::uint64_t> held_;      // by place: where the cells held after it begin; unused for the topmost
  std::vector<std::uint64_t> received_;  // by place: the areas of arriving cells; unused for level 0
  std::uint64_t end_ = 0;
};

inline std::shared_ptr<const SliceBody> bodyOfCells(std::shared_ptr<const Cells> cells, const Range& stretch) {
  return std::make_shared<const CellBody>(std::move(cells), stretch);
}

}  // namespace fairring
