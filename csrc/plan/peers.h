// The ranks that a rank exchanges with above its machine, over slices of every size and turn: all owners that its rails
// ever have. Pure arithmetic.
#pragma once

#include <cstddef>
#include <set>
#include <vector>

#include "plan/layout.h"
#include "plan/topology.h"

namespace fairring {

// `ways`: in which some plan lets ranks own shards; their turns do not matter here.
std::set<int> peersOf(const Topology& topology, int rank, const std::vector<FewOwners>& ways);

// How many the rank has that has most, where all owners of a rail own shards.
std::size_t mostPeers(const Topology& topology);

}  // namespace fairring
