// The dense body, whose copies and sums cost time. The memory of slices that it does not move is not touched, so that a
// thousand machines fit into one: then pieces of work are charged one by one, as they would be run. Of a slice that it
// moves, all of a job is charged as it begins.
#pragma once

#include <map>
#include <vector>

#include "exchange/dense_body.h"
#include "simulation/core.h"

namespace fairring::simulation {

class TimedBody final : public DenseBody {
 public:
  // movedBytes: of a slice that is moved, at most.
  TimedBody(Core& core, std::uint64_t movedBytes) : core_(core), movedBytes_(movedBytes) {}

  Job fill(const Slice& slice, std::size_t step) const override;
  Job combine(const Slice& slice, std::size_t step, const PeerImages& images) const override;
  std::vector<Copy> deliver(const Slice& slice, const Range& shard, const std::byte* image) const override;
  Job afterReceiving(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const override;

 private:
  bool moves(const Slice& slice) const { return slice.layout->elements <= movedBytes_; }
  Job timed(std::uint64_t bytes, double bytesPerSecond) const;

  Core& core_;
  const std::uint64_t movedBytes_;
};

}  // namespace fairring::simulation
