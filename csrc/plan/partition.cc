#include "plan/partition.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "plan/grain.h"

namespace fairring {

namespace {

__extension__ using Product = unsigned __int128;  // of units and grains

}  // namespace

int groupOf(const Topology& topology, int level, int rank) {
  const int machine = topology.machineOf(rank);
  if (level == 0) return machine;
  return level == 1 ? topology.siteOf(machine) : 0;
}

int groupsAt(const Topology& topology, int level) {
  if (level == 0) return topology.machines();
  return level == 1 ? topology.sites() : 1;
}

std::vector<int> membersOf(const Topology& topology, int level, int group) {
  if (level == 0) return topology.ranksOf(group);
  if (level == 1) return topology.machinesOf(group);
  std::vector<int> sites(topology.sites());
  std::iota(sites.begin(), sites.end(), 0);
  return sites;
}

Partitions::Partitions(const Topology& topology, Cut cut) : topology_(topology), cut_(std::move(cut)) {}

Partitions::Partitions(const Topology& topology) : Partitions(topology, std::identity()) {}

Partitions::Cut Partitions::onGrains(std::uint64_t bytes) {
  return [bytes, grains = ceilOf(bytes, kGrainBytes)](std::uint64_t units) {
    return std::min(bytes, static_cast<std::uint64_t>(Product{units} * grains / kWhole) * kGrainBytes);
  };
}

Partitions::Partition Partitions::partition(int level, int group) const {
  if (level < 0) return {{{0, kWhole}, group}};
  Partition result;
  for (const Rail& rail : fractionsOf(level, group)) {
    for (std::size_t i = 0; i < rail.owners.size(); ++i) {
      if (rail.shards[i].size() > 0) result.push_back({rail.shards[i], rail.owners[i]});
    }
  }
  return result;
}

std::vector<Rail> Partitions::of(int level, int group) const {
  std::vector<Rail> rails = fractionsOf(level, group);
  for (Rail& rail : rails) {
    rail.range = {cut_(rail.range.begin), cut_(rail.range.end)};
    for (Range& shard : rail.shards) shard = {cut_(shard.begin), cut_(shard.end)};
  }
  std::erase_if(rails, [](const Rail& rail) { return rail.range.size() == 0; });
  return rails;
}

std::vector<std::uint64_t> Partitions::firstUnits() const {
  std::vector<std::uint64_t> units(topology_.world(), kWhole);
  for (const Held& held : partition(topology_.levels().back(), 0))
    units[held.rank] = std::min(units[held.rank], held.range.begin);
  return units;
}

std::vector<Rail> Partitions::fractionsOf(int level, int group) const {
  std::vector<Partition> partitions;
  std::vector<std::uint64_t> cuts;
  for (const int member : membersOf(topology_, level, group)) {
    partitions.push_back(partition(level - 1, member));
    for (const Held& held : partitions.back()) cuts.push_back(held.range.end);
  }
  std::ranges::sort(cuts);
  const auto repeated = std::ranges::unique(cuts);
  cuts.erase(repeated.begin(), repeated.end());

  std::vector<Rail> rails;
  rails.reserve(cuts.size());
  std::vector<std::size_t> at(partitions.size(), 0);  // of each member, the part that holds the interval at hand
  const int parts = static_cast<int>(partitions.size());
  std::uint64_t begin = 0;
  for (const std::uint64_t end : cuts) {
    Rail rail;
    rail.range = {std::exchange(begin, end), end};
    for (std::size_t i = 0; i < partitions.size(); ++i) {
      rail.owners.push_back(partitions[i][at[i]].rank);
      if (partitions[i][at[i]].range.end == end) ++at[i];
    }
    for (int i = 0; i < parts; ++i) rail.shards.push_back(piece(rail.range, parts, i));
    rails.push_back(std::move(rail));
  }
  return rails;
}

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

}  // namespace fairring
