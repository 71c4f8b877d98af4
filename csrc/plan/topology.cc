#include "plan/topology.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <unordered_map>

#include "base/error.h"

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

std::string plural(std::size_t count, const char* noun) { return concat(count, " ", noun, count == 1 ? "" : "s"); }

// The messages of the busiest of so many members in so many groups to the others of its group, and whether the groups
// differ. Those cut their rails differently, so that one between them has about twice as many.
struct Grouping {
  int inside;
  int times;
};

Grouping groupingOf(int members, int groups) {
  return {(members + groups - 1) / groups - 1, members % groups == 0 ? 1 : 2};
}

// The number of groups, or of clusters and groups, that leaves the busiest rank the fewest messages.
std::vector<int> groupsOf(int machines, const GroupingFrom& from) {
  if (machines < from.groups) return {};
  std::vector<int> best;
  int fewest = machines - 1;
  for (int groups = 2; groups <= machines / 2; ++groups) {
    const auto [inside, times] = groupingOf(machines, groups);
    const int messages = inside + times * (groups - 1);
    if (messages < fewest) best = {groups};
    fewest = std::min(fewest, messages);
    if (machines < from.clusters) continue;
    for (int clusters = 2; clusters <= groups / 2; ++clusters) {
      const auto [between, more] = groupingOf(groups, clusters);
      const int clustered = inside + times * (between + more * (clusters - 1));
      if (clustered <= fewest) best = {groups, clusters};  // of equal numbers the smallest groups: they have most bytes
      fewest = std::min(fewest, clustered);
    }
  }
  return best;
}

}  // namespace

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

Topology Topology::inGroups() const {
  Topology grouped = *this;
  grouped.groups_.clear();
  grouped.onlyInGroups_ = false;
  const auto divide = [](int members, int groups, std::vector<int>& groupOf) {
    std::vector<std::vector<int>> membersOf(groups);
    groupOf.resize(members);
    for (int group = 0; group < groups; ++group) {
      const auto [first, last] = boundsOf(group, groups, members);
      for (int member = first; member < last; ++member) {
        membersOf[group].push_back(member);
        groupOf[member] = group;
      }
    }
    return membersOf;
  };
  grouped.machinesOf_ = divide(machines(), groups_.front(), grouped.siteOf_);
  grouped.sitesOf_ = divide(groups_.front(), groups_.size() > 1 ? groups_.back() : 1, grouped.clusterOf_);
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
