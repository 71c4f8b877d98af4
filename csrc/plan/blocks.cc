#include "plan/blocks.h"

#include <algorithm>
#include <numeric>

#include "plan/grain.h"
#include "plan/partition.h"

namespace fairring {

namespace {

std::uint64_t ranksIn(const Topology& topology, int level, int group) {
  std::uint64_t ranks = 0;
  for (int rank = 0; rank < topology.world(); ++rank) ranks += groupOf(topology, level, rank) == group ? 1 : 0;
  return ranks;
}

}  // namespace

Blocks::Blocks(const Topology& topology) : order_(topology.world()) {
  const std::vector<std::uint64_t> unitOf = Partitions(topology).firstUnits();
  std::iota(order_.begin(), order_.end(), 0);
  std::ranges::sort(order_, {}, [&](int rank) { return unitOf[rank]; });
  for (const int rank : order_) units_.push_back(unitOf[rank]);

  const Partitions counts(topology, [this](std::uint64_t unit) { return countBefore(unit); });
  std::vector<std::uint64_t> received(topology.world(), 0);
  std::vector<std::uint64_t> cells(topology.world(), static_cast<std::uint64_t>(topology.world()));
  for (const int level : topology.levels()) {
    for (int group = 0; group < groupsAt(topology, level); ++group) {
      const std::uint64_t ranks = ranksIn(topology, level, group);
      for (const Rail& rail : counts.of(level, group)) {
        for (std::size_t i = 0; i < rail.owners.size(); ++i) {
          const std::uint64_t blocks = rail.shards[i].size();
          if (level > 0) received[rail.owners[i]] += (rail.owners.size() - 1) * blocks;
          cells[rail.owners[i]] += (level > 0 ? 2 : 1) * ranks * blocks;
        }
      }
    }
  }
  mostReceived_ = std::ranges::max(received);
  mostCells_ = std::ranges::max(cells);
}

Layout Blocks::counts(const Topology& topology, int rank) const {
  const Partitions rails(topology, [this](std::uint64_t unit) { return countBefore(unit); });
  return layoutOf(rails, topology, rank, order_.size());
}

std::uint64_t Blocks::countBefore(std::uint64_t unit) const {
  return static_cast<std::uint64_t>(std::ranges::lower_bound(units_, unit) - units_.begin());
}

Layout Blocks::layout(const Topology& topology, int rank, std::span<const std::uint64_t> bytesByRank) const {
  const std::vector<std::uint64_t> offsets = blockOffsets(*this, bytesByRank);
  const Partitions rails(topology, [&](std::uint64_t unit) { return offsets[countBefore(unit)]; });
  return layoutOf(rails, topology, rank, offsets.back());
}

std::vector<std::uint64_t> blockOffsets(const Blocks& blocks, std::span<const std::uint64_t> bytesByRank) {
  std::vector<std::uint64_t> offsets{0};
  offsets.reserve(bytesByRank.size() + 1);
  for (const int rank : blocks.order())
    offsets.push_back(offsets.back() + roundUp(bytesByRank[static_cast<std::size_t>(rank)], kGrainBytes));
  return offsets;
}

}  // namespace fairring
