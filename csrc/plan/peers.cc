#include "plan/peers.h"

#include <algorithm>

#include "plan/partition.h"

namespace fairring {

std::set<int> peersOf(const Topology& topology, int rank) {
  std::set<int> peers;
  const Partitions rails(topology);
  for (const int level : topology.levels()) {
    if (level == 0) continue;
    for (const Rail& rail : rails.of(level, groupOf(topology, level, rank))) {
      const bool isOwner = std::ranges::find(rail.owners, rank) != rail.owners.end();
      if (isOwner) peers.insert(rail.owners.begin(), rail.owners.end());
    }
  }
  peers.erase(rank);
  return peers;
}

std::size_t mostPeers(const Topology& topology) {
  const Partitions rails(topology);
  const auto world = static_cast<std::size_t>(topology.world());
  std::vector<std::vector<bool>> meet(world, std::vector<bool>(world));  // two ranks
  for (const int level : topology.levels()) {
    for (int group = 0; level > 0 && group < groupsAt(topology, level); ++group) {
      for (const Rail& rail : rails.of(level, group)) {
        for (const int owner : rail.owners) {
          for (const int other : rail.owners)
            meet[static_cast<std::size_t>(owner)][static_cast<std::size_t>(other)] = true;
        }
      }
    }
  }
  std::ptrdiff_t most = 1;
  for (const std::vector<bool>& met : meet) most = std::max(most, std::ranges::count(met, true));
  return static_cast<std::size_t>(most - 1);  // without the rank itself
}

}  // namespace fairring
