// The dense body, whose copies and sums cost time. Where it moves nothing, memory is not touched either, so that a
// thousand machines fit into one: then pieces of work are charged one by one, as they would be run. Where it moves, all
// of a job is charged as it begins.
#pragma once

#include <map>
#include <vector>

#include "exchange/dense_body.h"
#include "simulation/core.h"

namespace fairring::simulation {

class TimedBody final : public DenseBody {
 public:
  TimedBody(Core& core, bool moves) : core_(core), moves_(moves) {}

  Job fill(const Slice& slice, std::size_t step) const override;
  Job combine(const Slice& slice, std::size_t step, const PeerImages& images) const override;
  std::vector<Copy> deliver(const Slice& slice, const Range& shard, const std::byte* image) const override;
  Job afterReceiving(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const override;

 private:
  Job timed(std::uint64_t bytes, double bytesPerSecond) const;

  Core& core_;
  const bool moves_;
};

}  // namespace fairring::simulation
