#include "plan/peers.h"

#include <algorithm>
#include <cstdint>

#include "plan/partition.h"

namespace fairring {

namespace {

// Few owners of a level change which ranks meet at the levels above it.
bool changesRails(const Topology& topology, const FewOwners& few) {
  return few.shards > 0 && few.level < topology.levels().back();
}

}  // namespace

std::set<int> peersOf(const Topology& topology, int rank, const std::vector<FewOwners>& ways) {
  std::set<int> peers;
  for (FewOwners few : ways) {
    const std::uint64_t turns = changesRails(topology, few) ? turnsOf(topology, few) : 1;
    for (few.turn = 0; few.turn < turns; ++few.turn) {
      const Partitions rails(topology, few);
      for (const int level : topology.levels()) {
        if (level == 0) continue;
        for (const Rail& rail : rails.of(level, groupOf(topology, level, rank))) {
          const bool isOwner = std::ranges::find(rail.owners, rank) != rail.owners.end();
          if (isOwner) peers.insert(rail.owners.begin(), rail.owners.end());
        }
      }
    }
  }
  peers.erase(rank);
  return peers;
}

}  // namespace fairring
