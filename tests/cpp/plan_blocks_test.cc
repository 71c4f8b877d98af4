// The path of each block on many topologies: a walk over the layouts of all ranks that follows each block.
#include "plan/blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "plan/planner.h"
#include "plan_machines.h"

namespace fairring {
namespace {

using Sites = std::vector<std::vector<int>>;

const Sites kTopologies[] = {{{1}},
                             {{5}},
                             {{1, 1, 1}},
                             {{2, 2}},
                             {{4, 4}},
                             {{8, 7}},
                             {{3, 1}},
                             {{2, 3, 2, 5}},
                             {{2}, {2}},
                             {{2, 2}, {2, 2}},
                             {{3, 2}, {4}},
                             {{1}, {1, 1}, {2}},
                             {{2, 1}, {3, 3, 3}, {1}},
                             {{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}};

std::vector<std::uint64_t> randomSizes(int world, std::mt19937& random) {
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(world), random() % 500);
  if (random() % 2 == 0) std::ranges::generate(sizes, [&] { return random() % 500; });
  return sizes;
}

std::vector<Layout> layoutsOfAll(const Topology& topology, const std::vector<std::uint64_t>& sizes) {
  const Blocks blocks(topology);
  std::vector<Layout> layouts;
  for (int rank = 0; rank < topology.world(); ++rank) layouts.push_back(blocks.layout(topology, rank, sizes));
  return layouts;
}

Range ownShard(const Rail& rail) { return rail.shards[static_cast<std::size_t>(rail.self)]; }

TEST(Blocks, EachRankEndsWithItsOwnAndNothingElse) {
  std::mt19937 random(1);
  for (const Sites& sites : kTopologies) {
    const Topology topology = onSites(sites);
    const Blocks blocks(topology);
    const std::vector<std::uint64_t> sizes = randomSizes(topology.world(), random);
    const std::vector<std::uint64_t> offsets = blockOffsets(blocks, sizes);
    const std::vector<Layout> layouts = layoutsOfAll(topology, sizes);
    for (std::size_t place = 0; place < blocks.order().size(); ++place) {
      const int rank = blocks.order()[place];
      std::uint64_t begin = UINT64_MAX;
      std::uint64_t bytes = 0;
      for (const Rail& rail : layouts[static_cast<std::size_t>(rank)].levels.back().rails) {
        if (ownShard(rail).size() > 0) begin = std::min(begin, ownShard(rail).begin);
        bytes += ownShard(rail).size();
      }
      EXPECT_EQ(bytes, offsets[place + 1] - offsets[place]) << topology.describe() << ", rank " << rank;
      EXPECT_EQ(bytes > 0 ? begin : offsets[place], offsets[place]) << topology.describe() << ", rank " << rank;
    }
  }
}

TEST(Blocks, AtEachLevelEveryGroupHasOneRankForEachByteAndOwnersAgreeOnTheirRails) {
  std::mt19937 random(2);
  for (const Sites& sites : kTopologies) {
    const Topology topology = onSites(sites);
    const std::vector<Layout> layouts = layoutsOfAll(topology, randomSizes(topology.world(), random));
    for (const int level : topology.levels()) {
      std::uint64_t held = 0;
      for (int rank = 0; rank < topology.world(); ++rank) {
        for (const Rail& rail : layouts[static_cast<std::size_t>(rank)].at(level).rails) {
          held += ownShard(rail).size();
          for (const int owner : rail.owners) {
            const auto& theirs = layouts[static_cast<std::size_t>(owner)].at(level).rails;
            EXPECT_TRUE(std::ranges::any_of(theirs,
                                            [&](const Rail& other) {
                                              return other.range == rail.range && other.owners == rail.owners &&
                                                     other.shards == rail.shards;
                                            }))
                << topology.describe() << ", level " << level << ", ranks " << rank << " and " << owner;
          }
        }
      }
      const int groups = level == 0 ? topology.machines() : level == 1 ? topology.sites() : 1;
      EXPECT_EQ(held, layouts.front().bytes * static_cast<std::uint64_t>(groups))
          << topology.describe() << ", level " << level;
    }
  }
}

TEST(Blocks, NeedNoConnectionThatAnAllReduceDoesNot) {
  std::mt19937 random(3);
  for (const Sites& sites : kTopologies) {
    const Topology topology = onSites(sites);
    const std::vector<Layout> layouts =
        layoutsOfAll(topology, std::vector<std::uint64_t>(static_cast<std::size_t>(topology.world()), 100));
    const std::vector<CostRow> rows(Topology::kLevels, {1e-5, 1e-6, 1e9, 1e10});
    const Planner planner(topology, {1 << 24, 1 << 20, rows});
    for (int rank = 0; rank < topology.world(); ++rank) {
      const std::set<int> peers = planner.peersOf(rank);
      for (const LevelLayout& level : layouts[static_cast<std::size_t>(rank)].levels) {
        for (const Rail& rail : level.rails) {
          for (const int owner : rail.owners) {
            if (level.level == 0 || owner == rank) continue;
            EXPECT_TRUE(peers.contains(owner)) << topology.describe() << ": " << rank << " and " << owner;
          }
        }
      }
    }
  }
}

TEST(Blocks, TheStagingThatAllRanksAgreeOnHoldsEverySlice) {
  std::mt19937 random(4);
  for (const Sites& sites : kTopologies) {
    const Topology topology = onSites(sites);
    const std::vector<CostRow> rows(Topology::kLevels, {1e-5, 1e-6, 1e9, 1e10});
    const auto world = static_cast<std::size_t>(topology.world());
    const Planner planner(topology, {1 << 18, 1 << 16, rows});
    for (const std::uint64_t bytes : {1U, 64U, 1000U, 100'000U}) {
      const PlanChoice choice = planner.choose(Pattern::ReduceScatter, bytes);
      std::vector<std::uint64_t> sizes(world, choice.sliceBytes);
      for (int rank = 0; rank < topology.world(); ++rank) {
        const Layout layout = planner.blocks().layout(topology, rank, sizes);
        EXPECT_LE(stagingBytes(choice.plan, layout), choice.sliceStagingBytes) << topology.describe();
      }
      EXPECT_LE(choice.sliceStagingBytes, choice.stagingBytes) << topology.describe();
    }
  }
}

TEST(Blocks, OfEqualMachinesEachRankExchangesWithItsLikesAlone) {
  const Topology topology = onSites({{3, 3, 3}});
  const Blocks blocks(topology);
  const std::vector<std::uint64_t> sizes(9, 64);
  for (int rank = 0; rank < 9; ++rank) {
    const Layout layout = blocks.layout(topology, rank, sizes);
    ASSERT_EQ(layout.at(1).rails.size(), 1U) << "one message to each";
    for (const int owner : layout.at(1).rails.front().owners)
      EXPECT_EQ(topology.localIndexOf(owner), topology.localIndexOf(rank));
  }
}

}  // namespace
}  // namespace fairring
