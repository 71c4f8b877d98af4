#include "plan/load.h"

#include <algorithm>
#include <cstddef>

#include "plan/grain.h"
#include "plan/partition.h"

namespace fairring {

std::uint64_t Load::heldBytes(int level, std::uint64_t sliceBytes) const {
  std::uint64_t held = ceilOf(sliceBytes, kGrainBytes) * kGrainBytes;
  for (int below = 0; below < level; ++below) {
    if (levels[below].owners == 1) continue;
    const auto [rails, owners] = levels[below];
    // Rounding gives each rail's shard less than one grain more than its part.
    held = std::min(held, ceilOf(held, owners) + kGrainBytes * rails);
  }
  return held;
}

std::vector<Load> loadsOf(const Topology& topology) {
  std::vector<Load> loads(topology.world());  // by rank
  const Partitions rails(topology);
  for (const int level : topology.levels()) {  // at the others a rank's one rail has no other owner
    for (Load& load : loads) load.levels[level].rails = 0;
    for (int group = 0; group < groupsAt(topology, level); ++group) {
      for (const Rail& rail : rails.of(level, group)) {
        for (const int owner : rail.owners) {
          LevelLoad& load = loads[owner].levels[level];
          load.owners = rail.owners.size();
          ++load.rails;
        }
      }
    }
  }
  std::ranges::sort(loads);
  const auto repeated = std::ranges::unique(loads);
  loads.erase(repeated.begin(), repeated.end());
  return loads;
}

}  // namespace fairring
