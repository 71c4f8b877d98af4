#include "plan/topology.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "plan/peers.h"

namespace fairring {

namespace {

std::string countsOf(const std::vector<std::vector<int>>& groups) {
  const bool equal =
      std::ranges::all_of(groups, [&](const auto& group) { return group.size() == groups.front().size(); });
  if (equal) return std::to_string(groups.front().size());  // and not a thousand times the same number
  std::string counts;
  for (const auto& group : groups) counts += (counts.empty() ? "(" : ", ") + std::to_string(group.size());
  return counts + ")";
}

constexpr std::size_t kFewPeers = 62;  // as 64 machines without groups have, within 1
constexpr std::size_t kMostTried = 8;  // groupings, some milliseconds each

std::string plural(std::size_t count, const char* noun) { return concat(count, " ", noun, count == 1 ? "" : "s"); }

struct Grouping {
  int groups;
  int messages;  // of the busiest rank, about: to the others of its group, and to one of each other group
  bool isEqual;  // then exactly, and each goes to another rank
};

// Groups of unequal sizes cut their rails differently, so that one between them has about twice as many messages.
Grouping groupingOf(int machines, int groups) {
  const int times = machines % groups == 0 ? 1 : 2;
  return {groups, (machines + groups - 1) / groups - 1 + times * (groups - 1), times == 1};
}

// The groupings with the fewest messages, and fewer than without any, the best first: of those the fewest groups.
std::vector<Grouping> groupingsOf(int machines) {
  std::vector<Grouping> groupings;
  for (int groups = 2; groups <= machines / 2; ++groups) {
    const Grouping one = groupingOf(machines, groups);
    if (one.messages < machines - 1) groupings.push_back(one);
  }
  std::ranges::sort(groupings, {}, [](const Grouping& one) { return std::pair(one.messages, one.groups); });
  groupings.resize(std::min(groupings.size(), kMostTried));
  return groupings;
}

}  // namespace

// The number that leaves the busiest rank the fewest messages. Where all plans have groups, those count that leave it
// few enough peers, or of the first ones the fewest.
int Topology::groupsOf(int machines, const GroupingFrom& from) {
  if (machines < from.groups) return 0;
  const std::vector<Grouping> groupings = groupingsOf(machines);
  if (groupings.empty()) return 0;
  if (machines < from.only) return groupings.front().groups;
  std::vector<Place> places;
  places.reserve(static_cast<std::size_t>(machines));
  for (int machine = 0; machine < machines; ++machine) places.push_back({std::to_string(machine), ""});
  const Topology ofOneRank(places, {.groups = GroupingFrom::kNever});
  const auto peersOf = [&](const Grouping& grouping) {
    return grouping.isEqual ? static_cast<std::size_t>(grouping.messages)
                            : mostPeers(ofOneRank.inGroups(grouping.groups));
  };
  int best = 0;
  std::size_t fewest = std::numeric_limits<std::size_t>::max();
  for (const Grouping& grouping : groupings) {
    const std::size_t peers = peersOf(grouping);
    if (peers < fewest) {
      best = grouping.groups;
      fewest = peers;
    }
    if (peers <= kFewPeers) break;
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

Topology Topology::inGroups(int groups) const {
  Topology grouped = *this;
  grouped.groups_ = 0;
  grouped.onlyInGroups_ = false;
  grouped.machinesOf_.assign(static_cast<std::size_t>(groups), {});
  for (int group = 0; group < groups; ++group) {
    const auto [first, last] = boundsOf(group, groups, machines());
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
