// The ranks that a rank exchanges with above its machine, over slices of every size: all owners that its rails
// ever have. Pure arithmetic.
#pragma once

#include <cstddef>
#include <set>

#include "plan/topology.h"

namespace fairring {

std::set<int> peersOf(const Topology& topology, int rank);

// How many the rank has that has most.
std::size_t mostPeers(const Topology& topology);

}  // namespace fairring
