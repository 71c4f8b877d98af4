#include "plan/topology.h"

#include <algorithm>
#include <cstddef>
#include <unordered_map>

#include "base/error.h"

namespace fairring {

namespace {

std::string countsOf(const std::vector<std::vector<int>>& groups) {
  const bool equal =
      std::ranges::all_of(groups, [&](const auto& group) { return group.size() == groups.front().size(); });
  if (equal) return std::to_string(groups.front().size());  // and not a thousand times the same number
  return concat("(", joined(groups, ", ", [](const auto& group) { return group.size(); }), ")");
}

std::string plural(std::size_t count, const char* noun) { return concat(count, " ", noun, count == 1 ? "" : "s"); }

}  // namespace

// The smallest number that leaves the busiest rank the fewest messages, and fewer than without groups: one to each
// other rank of its group and one to each other group. Groups of unequal sizes cut their rails differently, so between
// them there are about twice as many.
int Topology::groupsOf(int machines, const GroupingFrom& from) {
  if (machines < from.groups) return 0;
  int best = 0;
  int fewest = machines - 1;
  for (int groups = 2; groups <= machines / 2; ++groups) {
    const int times = machines % groups == 0 ? 1 : 2;
    const int messages = (machines + groups - 1) / groups - 1 + times * (groups - 1);
    if (messages >= fewest) continue;
    best = groups;
    fewest = messages;
  }
  return best;
}

GroupBounds boundsOf(int group, int groups, int members) {
  return {group * members / groups, (group + 1) * members / groups};
}

Topology::Topology(const std::vector<Place>& places, const GroupingFrom& from) {
  check(!places.empty(), ErrorKind::Configuration, "a group of 0 ranks: it needs at least one");
  std::unordered_map<std::string, int> machines;
  std::unordered_map<std::string, int> sites;
  for (int rank = 0; rank < static_cast<int>(places.size()); ++rank) {
    const Place& place = places[rank];
    const auto [site, siteIsNew] = sites.try_emplace(place.site, static_cast<int>(machinesOf_.size()));
    if (siteIsNew) machinesOf_.emplace_back();
    const auto [machine, machineIsNew] = machines.try_emplace(place.machine, static_cast<int>(ranksOf_.size()));
    if (machineIsNew) {
      ranksOf_.emplace_back();
      siteOf_.push_back(site->second);
      machinesOf_[site->second].push_back(machine->second);
    }
    std::vector<int>& ranks = ranksOf_[machine->second];
    if (siteOf_[machine->second] != site->second) {  // not for a new machine, so it has a first rank
      throw Failure(makeError(ErrorKind::Configuration, "machine '", place.machine, "' stands in two sites: rank ",
                              ranks.front(), " says '", places[ranks.front()].site, "', rank ", rank, " says '",
                              place.site, "'; give all ranks of a machine the same site"));
    }
    machineOf_.push_back(machine->second);
    localIndexOf_.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(rank);
  }
  if (machinesOf_.size() == 1) groups_ = groupsOf(this->machines(), from);
  onlyInGroups_ = groups_ > 0 && this->machines() >= from.only;
}

Topology Topology::inGroups() const {
  Topology grouped = *this;
  grouped.groups_ = 0;
  grouped.onlyInGroups_ = false;
  grouped.machinesOf_.assign(static_cast<std::size_t>(groups_), {});
  for (int group = 0; group < groups_; ++group) {
    const auto [first, last] = boundsOf(group, groups_, machines());
    for (int machine = first; machine < last; ++machine) {
      grouped.machinesOf_[group].push_back(machine);
      grouped.siteOf_[machine] = group;
    }
  }
  return grouped;
}

std::vector<int> Topology::levels() const {
  std::vector<int> levels{0};
  if (machines() > sites()) levels.push_back(1);
  if (sites() > 1) levels.push_back(2);
  return levels;
}

std::string Topology::describe() const {
  std::string machines = concat(plural(ranksOf_.size(), "machine"), " of ", countsOf(ranksOf_), " ranks");
  if (sites() == 1) return machines;
  return concat(plural(machinesOf_.size(), "site"), " of ", countsOf(machinesOf_), " machines, ", machines);
}

}  // namespace fairring
