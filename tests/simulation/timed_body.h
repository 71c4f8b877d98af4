// The bodies of dense slices and of cells, whose copies and sums cost time. All of a job is charged as it begins. Where
// a world moves no bytes, no slice's memory is touched, and pieces of work are charged one by one, as they would be
// run.
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
  TimedBody(Core& core, bool movesBytes) : core_(core), movesBytes_(movesBytes) {}

  Job fill(const Slice& slice, std::size_t step) const override;
  Job combine(const Slice& slice, std::size_t step, const PeerImages& images) const override;
  std::vector<Copy> deliver(const Slice& slice, const Range& shard, const std::byte* image) const override;
  Job afterReceiving(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const override;

 private:
  Core& core_;
  const bool movesBytes_;
};

class TimedCells final : public CellBody {
 public:
  TimedCells(Core& core, std::shared_ptr<const Cells> cells, const Range& stretch)
      : CellBody(std::move(cells), stretch), core_(core) {}

  Job fill(const Slice& slice, std::size_t step) const override;
  Job combine(const Slice& slice, std::size_t step, const PeerImages& images) const override;
  Job afterReceiving(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const override;

 private:
  Core& core_;
};

}  // namespace fairring::simulation
