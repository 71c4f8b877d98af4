#include "plan/topology.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <tuple>
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
constexpr std::size_t kMostTried = 8;  // groupings, some milliseconds each; up to 1 024 machines 4 are enough

std::string plural(std::size_t count, const char* noun) { return concat(count, " ", noun, count == 1 ? "" : "s"); }

// The messages of the busiest of so many members in so many groups to the others of its group, and whether the groups
// differ. Those cut their rails differently, so that one between them has about twice as many.
struct Division {
  int inside;
  int times;
};

Division divisionOf(int members, int groups) {
  return {(members + groups - 1) / groups - 1, members % groups == 0 ? 1 : 2};
}

struct Grouping {
  int groups;
  int clusters;  // 1: none
  int messages;  // of the busiest rank, about
  bool isEqual;  // then exactly, and each goes to another rank

  std::vector<int> numbers() const { return clusters > 1 ? std::vector{groups, clusters} : std::vector{groups}; }
  // Of equal numbers of messages, clusters first, with the smallest groups, since their groups have most bytes.
  auto order() const {
    return clusters > 1 ? std::tuple(messages, 0, -groups, -clusters) : std::tuple(messages, 1, groups, 0);
  }
};

// The groupings with the fewest messages, and fewer than without any, the best first.
std::vector<Grouping> groupingsOf(int machines, const GroupingFrom& from) {
  std::vector<Grouping> groupings;
  const auto add = [&](const Grouping& one) {
    if (one.messages < machines - 1) groupings.push_back(one);
  };
  for (int groups = 2; groups <= machines / 2; ++groups) {
    const auto [inside, times] = divisionOf(machines, groups);
    add({groups, 1, inside + times * (groups - 1), times == 1});
    for (int clusters = 2; machines >= from.clusters && clusters <= groups / 2; ++clusters) {
      const auto [between, more] = divisionOf(groups, clusters);
      add({groups, clusters, inside + times * (between + more * (clusters - 1)), times * more == 1});
    }
  }
  const std::size_t tried = std::min(groupings.size(), kMostTried);
  std::ranges::partial_sort(groupings, groupings.begin() + static_cast<std::ptrdiff_t>(tried), {}, &Grouping::order);
  groupings.resize(tried);
  return groupings;
}

}  // namespace

// The number of groups, or of clusters and groups, that leaves the busiest rank the fewest messages. Where all plans
// have them, those count that leave it few enough peers, or of the first ones the fewest.
std::vector<int> Topology::groupsOf(int machines, const GroupingFrom& from) {
  if (machines < from.groups) return {};
  const std::vector<Grouping> groupings = groupingsOf(machines, from);
  if (groupings.empty()) return {};
  if (machines < from.only) return groupings.front().numbers();
  std::vector<Place> places;
  places.reserve(static_cast<std::size_t>(machines));
  for (int machine = 0; machine < machines; ++machine) places.push_back({std::to_string(machine), ""});
  const Topology ofOneRank(places, {.groups = GroupingFrom::kNever});
  const auto peersOf = [&](const Grouping& grouping) {
    return grouping.isEqual ? static_cast<std::size_t>(grouping.messages)
                            : mostPeers(ofOneRank.inGroups(grouping.numbers()));
  };
  const Grouping* best = nullptr;
  std::size_t fewest = kFewPeers + 1;
  for (const Grouping& grouping : groupings) {
    const std::size_t peers = peersOf(grouping);
    if (best == nullptr || peers < fewest) {
      best = &grouping;
      fewest = peers;
    }
    if (peers <= kFewPeers) break;
  }
  return best->numbers();
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
  clusterOf_.assign(machinesOf_.size(), 0);
  sitesOf_.assign(1, std::vector<int>(machinesOf_.size()));
  std::iota(sitesOf_.front().begin(), sitesOf_.front().end(), 0);
  if (machinesOf_.size() == 1) groups_ = groupsOf(this->machines(), from);
  onlyInGroups_ = !groups_.empty() && this->machines() >= from.only;
}

Topology Topology::inGroups(const std::vector<int>& groups) const {
  Topology grouped = *this;
  grouped.groups_.clear();
  grouped.onlyInGroups_ = false;
  const auto divide = [](int members, int into, std::vector<int>& groupOf) {
    std::vector<std::vector<int>> membersOf(into);
    groupOf.resize(members);
    for (int group = 0; group < into; ++group) {
      const auto [first, last] = boundsOf(group, into, members);
      for (int member = first; member < last; ++member) {
        membersOf[group].push_back(member);
        groupOf[member] = group;
      }
    }
    return membersOf;
  };
  grouped.machinesOf_ = divide(machines(), groups.front(), grouped.siteOf_);
  grouped.sitesOf_ = divide(groups.front(), groups.size() > 1 ? groups.back() : 1, grouped.clusterOf_);
  return grouped;
}

std::vector<int> Topology::levels() const {
  std::vector<int> levels{0};
  if (machines() > sites()) levels.push_back(1);
  if (sites() > clusters()) levels.push_back(2);
  if (clusters() > 1) levels.push_back(3);
  return levels;
}

std::string Topology::describe() const {
  std::string machines = concat(plural(ranksOf_.size(), "machine"), " of ", countsOf(ranksOf_), " ranks");
  if (sites() == 1) return machines;
  return concat(plural(machinesOf_.size(), "site"), " of ", countsOf(machinesOf_), " machines, ", machines);
}

}  // namespace fairring
