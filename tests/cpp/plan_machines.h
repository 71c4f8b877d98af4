// Topologies by the numbers of their ranks, for the tests of plan/. Ranks are dealt out in turn, one to each machine
// that still has room, so that a machine's ranks are not neighbours.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "plan/topology.h"

namespace fairring {

inline Topology onSites(const std::vector<std::vector<int>>& ranksOfMachinesOfSites, const GroupingFrom& from = {}) {
  int largest = 0;
  for (const auto& site : ranksOfMachinesOfSites) largest = std::max(largest, *std::ranges::max_element(site));
  std::vector<Place> places;
  for (int turn = 0; turn < largest; ++turn) {
    for (std::size_t site = 0; site < ranksOfMachinesOfSites.size(); ++site) {
      for (std::size_t machine = 0; machine < ranksOfMachinesOfSites[site].size(); ++machine) {
        if (turn >= ranksOfMachinesOfSites[site][machine]) continue;
        const std::string siteName = "site" + std::to_string(site);
        places.push_back({siteName + ".machine" + std::to_string(machine), siteName});
      }
    }
  }
  return Topology(places, from);
}

inline Topology onOneSite(const std::vector<int>& ranksOfMachines, const GroupingFrom& from = {}) {
  return onSites({ranksOfMachines}, from);
}

// Groups from four machines on, which all plans take.
inline constexpr GroupingFrom kSmallGroups{.groups = 4, .only = 4};

}  // namespace fairring
