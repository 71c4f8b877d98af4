// The memory that a slice needs, as planner.h declares it: exact for one layout, bounded for all ranks.
#include <algorithm>
#include <cstddef>

#include "plan/grain.h"
#include "plan/load.h"
#include "plan/planner.h"

namespace fairring {

namespace {

// Others' contributions arrive and need a place. Level 0 reads them where they are, in its peers' images.
bool receives(const Step& step) { return step.level > 0 && reduces(step.verb); }

std::uint64_t receivedBytes(const Step& step, const Layout& layout) {
  if (!receives(step)) return 0;
  std::uint64_t bytes = 0;
  for (const Rail& rail : layout.at(step.level).rails) {
    const Range& area = step.verb == Verb::AllReduce ? rail.range : rail.shards[rail.self];
    bytes += (rail.owners.size() - 1) * area.size();
  }
  return bytes;
}

std::uint64_t receivedBytesBound(const Step& step, const Load& load, std::uint64_t sliceBytes) {
  if (!receives(step)) return 0;
  const int held = step.verb == Verb::AllReduce ? step.level : step.level + 1;
  return (load.levels[step.level].owners - 1) * load.heldBytes(held, sliceBytes);
}

}  // namespace

std::uint64_t receiveOffset(const Plan& plan, const Layout& layout, std::size_t step) {
  std::uint64_t offset = roundUp(layout.bytes, kGrainBytes);
  for (std::size_t before = 0; before < step; ++before) offset += receivedBytes(plan[before], layout);
  return offset;
}

std::uint64_t stagingBytes(const Plan& plan, const Layout& layout) { return receiveOffset(plan, layout, plan.size()); }

std::uint64_t worstStagingBytes(const Plan& plan, const std::vector<Load>& loads, std::uint64_t sliceBytes,
                                std::uint64_t grainsTogether) {
  const std::uint64_t units = ceilOf(sliceBytes, grainsTogether);
  std::uint64_t worst = 0;
  for (const Load& load : loads) {
    std::uint64_t received = 0;
    for (const Step& step : plan) received += receivedBytesBound(step, load, units);
    worst = std::max(worst, received);
  }
  return grainsTogether * (roundUp(units, kGrainBytes) + worst);
}

}  // namespace fairring
