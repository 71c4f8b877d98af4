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

StepWork Load::work(const Step& step, std::uint64_t sliceBytes) const {
  const LevelLoad& here = levels[step.level];
  const std::uint64_t held = heldBytes(step.level, sliceBytes);
  const std::uint64_t peers = here.owners - 1;
  const bool sums = reduces(step.verb) && peers > 0;
  if (step.verb == Verb::Load || step.verb == Verb::Store) {
    return {.bytes = heldBytes(Topology::kLevels, sliceBytes)};
  }
  if (step.level == 0) {
    const std::uint64_t summed = step.verb == Verb::AllReduce ? held * here.owners : held;
    return {here.rails * peers, held, sums ? summed : 0};
  }
  if (step.verb == Verb::Relay) {
    const std::uint64_t times = std::min<std::uint64_t>(step.passedOnTo, peers);
    return {here.rails * times, held * times};
  }
  if (step.verb == Verb::AllReduce) return {here.rails * peers, held * peers, sums ? held * here.owners : 0};
  return {here.rails * peers, held * peers / here.owners, sums ? held : 0};
}

StepWork& StepWork::operator+=(const StepWork& other) {
  messages += other.messages;
  bytes += other.bytes;
  summedBytes += other.summedBytes;
  return *this;
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
