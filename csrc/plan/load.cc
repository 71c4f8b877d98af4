#include "plan/load.h"

#include <algorithm>
#include <cstddef>

#include "plan/grain.h"
#include "plan/partition.h"

namespace fairring {

namespace {

// The most rails of the level above few owners into which one shard is cut.
std::uint64_t mostRailsOfAShard(const Topology& topology, const FewOwners& few) {
  const Partitions rails(topology, few);
  std::vector<Range> shards;
  std::vector<std::uint64_t> cuts;
  for (int group = 0; group < groupsAt(topology, few.level); ++group) {
    for (const Rail& rail : rails.of(few.level, group)) {
      for (const Range& shard : rail.shards) {
        if (shard.size() == 0) continue;
        shards.push_back(shard);
        cuts.push_back(shard.end);
      }
    }
  }
  std::ranges::sort(cuts);
  const auto repeated = std::ranges::unique(cuts);
  cuts.erase(repeated.begin(), repeated.end());
  std::ptrdiff_t most = 1;
  for (const Range& shard : shards) {
    most = std::max(most, std::ranges::upper_bound(cuts, shard.end) - std::ranges::upper_bound(cuts, shard.begin));
  }
  return static_cast<std::uint64_t>(most);
}

void sortOutEqual(std::vector<Load>& loads) {
  std::ranges::sort(loads);
  const auto repeated = std::ranges::unique(loads);
  loads.erase(repeated.begin(), repeated.end());
}

// By rank, if all owners have even parts.
std::vector<Load> evenLoads(const Topology& topology) {
  std::vector<Load> loads(topology.world());
  const Partitions rails(topology);
  for (const int level : topology.levels()) {  // at the others a rank's one rail has no other owner
    for (Load& load : loads) load.levels[level].rails = 0;
    for (int group = 0; group < groupsAt(topology, level); ++group) {
      for (const Rail& rail : rails.of(level, group)) {
        for (const int owner : rail.owners) {
          LevelLoad& load = loads[owner].levels[level];
          load.owners = load.shards = rail.owners.size();
          ++load.rails;
        }
      }
    }
  }
  return loads;
}

}  // namespace

std::uint64_t Load::heldBytes(int level, std::uint64_t sliceBytes) const {
  std::uint64_t held = ceilOf(sliceBytes, kGrainBytes) * kGrainBytes;
  for (int below = 0; below < level; ++below) {
    if (levels[below].owners == 1) continue;
    const auto [rails, owners, shards] = levels[below];
    // Rounding gives each rail's shard less than one grain more than its part.
    held = std::min(held, ceilOf(held, shards) + kGrainBytes * rails);
  }
  return held;
}

std::vector<Load> loadsOf(const Topology& topology, const FewOwners& few) {
  std::vector<Load> loads = evenLoads(topology);
  sortOutEqual(loads);
  if (few.shards == 0) return loads;
  const bool isTop = few.level == topology.levels().back();
  const std::uint64_t mostRails = isTop ? 1 : mostRailsOfAShard(topology, few);
  for (Load& load : loads) {
    LevelLoad& here = load.levels[few.level];
    here.shards = std::min<std::uint64_t>(here.owners, few.shards);
    if (isTop || here.shards == here.owners) continue;
    for (int above = few.level + 1; above < Topology::kLevels; ++above)
      load.levels[above].rails = here.rails * mostRails;
  }
  sortOutEqual(loads);
  return loads;
}

}  // namespace fairring
