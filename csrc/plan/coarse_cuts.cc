#include "plan/coarse_cuts.h"

#include <algorithm>

#include "plan/grain.h"

namespace fairring {

Layout inBytes(const Layout& units, std::uint64_t unitBytes, std::uint64_t bytes) {
  Layout layout = units;
  layout.bytes = bytes;
  const auto scale = [&](Range& range) {
    range = {std::min(range.begin * unitBytes, bytes), std::min(range.end * unitBytes, bytes)};
  };
  for (LevelLayout& level : layout.levels) {
    for (Rail& rail : level.rails) {
      scale(rail.range);
      std::ranges::for_each(rail.shards, scale);
    }
  }
  return layout;
}

std::uint64_t worstStagingOfCoarseCuts(const Plan& plan, const std::vector<Load>& loads, std::uint64_t sliceBytes) {
  const std::uint64_t units = ceilOf(sliceBytes, kMostGrainsTogether);
  return kMostGrainsTogether * worstStagingBytes(plan, loads, units);
}

}  // namespace fairring
