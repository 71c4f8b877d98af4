// The bodies of dense slices and of cells, whose copies and sums cost time. The memory of slices that they do not move
// is not touched, so that a thousand machines fit into one: then pieces of work are charged one by one, as they would
// be run. Of a slice that they move, all of a job is charged as it begins.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "exchange/cells.h"
#include "exchange/dense_body.h"
#include "simulation/core.h"

namespace fairring::simulation {

class TimedBody final : public DenseBody {
 public:
  TimedBody(Core& core, Moved moved) : core_(core), moved_(moved) {}

  Job fill(const Slice& slice, std::size_t step) const override;
  Job combine(const Slice& slice, std::size_t step, const PeerImages& images) const override;
  std::vector<Copy> deliver(const Slice& slice, const Range& shard, const std::byte* image) const override;
  Job afterReceiving(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const override;

 private:
  Core& core_;
  const Moved moved_;
};

class TimedCells final : public CellBody {
 public:
  TimedCells(Core& core, Moved moved, std::shared_ptr<const Cells> cells, const Range& stretch)
      : CellBody(std::move(cells), stretch), core_(core), moved_(moved) {}

  Job fill(const Slice& slice, std::size_t step) const override;
  Job combine(const Slice& slice, std::size_t step, const PeerImages& images) const override;
  Job afterReceiving(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const override;

 private:
  Core& core_;
  const Moved moved_;
};

}  // namespace fairring::simulation
