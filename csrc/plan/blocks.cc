#include "plan/blocks.h"

#include <algorithm>
#include <numeric>

#include "plan/grain.h"
#include "plan/partition.h"

namespace fairring {

Blocks::Blocks(const Topology& topology) : order_(topology.world()) {
  const std::vector<std::uint64_t> unitOf = Partitions(topology).firstUnits();
  std::iota(order_.begin(), order_.end(), 0);
  std::ranges::sort(order_, {}, [&](int rank) { return unitOf[rank]; });
  for (const int rank : order_) units_.push_back(unitOf[rank]);

  const Partitions counts(topology, [this](std::uint64_t unit) { return countBefore(unit); });
  std::vector<std::uint64_t> received(topology.world(), 0);
  for (const int level : topology.levels()) {
    for (int group = 0; level > 0 && group < groupsAt(topology, level); ++group) {
      for (const Rail& rail : counts.of(level, group)) {
        for (std::size_t i = 0; i < rail.owners.size(); ++i)
          received[rail.owners[i]] += (rail.owners.size() - 1) * rail.shards[i].size();
      }
    }
  }
  mostReceived_ = std::ranges::max(received);
}

std::uint64_t Blocks::countBefore(std::uint64_t unit) const {
  return static_cast<std::uint64_t>(std::ranges::lower_bound(units_, unit) - units_.begin());
}

Layout Blocks::layout(const Topology& topology, int rank, std::span<const std::uint64_t> bytesByRank) const {
  const std::vector<std::uint64_t> offsets = blockOffsets(*this, bytesByRank);
  const Partitions rails(topology, [&](std::uint64_t unit) { return offsets[countBefore(unit)]; });
  return layoutOf(rails, topology, rank, offsets.back(), 1);
}

std::vector<std::uint64_t> blockOffsets(const Blocks& blocks, std::span<const std::uint64_t> bytesByRank) {
  std::vector<std::uint64_t> offsets{0};
  offsets.reserve(bytesByRank.size() + 1);
  for (const int rank : blocks.order())
    offsets.push_back(offsets.back() + roundUp(bytesByRank[static_cast<std::size_t>(rank)], kGrainBytes));
  return offsets;
}

}  // namespace fairring
