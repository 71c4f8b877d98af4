#include "plan/partition.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace fairring {

int groupOf(const Topology& topology, int level, int rank) {
  if (level == 0) return topology.machineOf(rank);
  return level == 1 ? topology.siteOf(topology.machineOf(rank)) : 0;
}

int groupsAt(const Topology& topology, int level) {
  if (level == 0) return topology.machines();
  return level == 1 ? topology.sites() : 1;
}

Partitions::Partitions(const Topology& topology, std::uint64_t elements, std::uint64_t grain)
    : topology_(topology), elements_(elements), grain_(grain) {}

std::vector<int> Partitions::members(int level, int group) const {
  if (level == 0) return topology_.ranksOf(group);
  if (level == 1) return topology_.machinesOf(group);
  std::vector<int> sites(topology_.sites());
  std::iota(sites.begin(), sites.end(), 0);
  return sites;
}

Partitions::Partition Partitions::partition(int level, int group) const {
  if (elements_ == 0) return {};
  if (level < 0) return {{{0, elements_}, group}};
  Partition result;
  for (const Rail& rail : of(level, group)) {
    for (std::size_t i = 0; i < rail.owners.size(); ++i) {
      if (rail.shards[i].size() > 0) result.push_back({rail.shards[i], rail.owners[i]});
    }
  }
  return result;
}

std::vector<Rail> Partitions::of(int level, int group) const {
  std::vector<Partition> partitions;
  std::vector<std::uint64_t> cuts;
  for (const int member : members(level, group)) {
    partitions.push_back(partition(level - 1, member));
    for (const Held& held : partitions.back()) cuts.push_back(held.range.end);
  }
  std::ranges::sort(cuts);
  const auto repeated = std::ranges::unique(cuts);
  cuts.erase(repeated.begin(), repeated.end());

  std::vector<Rail> rails;
  rails.reserve(cuts.size());
  std::vector<std::size_t> at(partitions.size(), 0);  // of each member, the part that holds the interval at hand
  std::uint64_t begin = 0;
  for (const std::uint64_t end : cuts) {
    Rail rail;
    rail.range = {std::exchange(begin, end), end};
    for (std::size_t i = 0; i < partitions.size(); ++i) {
      rail.owners.push_back(partitions[i][at[i]].rank);
      rail.shards.push_back(piece(rail.range, static_cast<int>(partitions.size()), static_cast<int>(i), grain_));
      if (partitions[i][at[i]].range.end == end) ++at[i];
    }
    rails.push_back(std::move(rail));
  }
  return rails;
}

}  // namespace fairring
