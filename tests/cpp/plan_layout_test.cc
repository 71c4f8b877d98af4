// Properties of the layout on every topology of a table and at sizes around the edges. The model is a walk over single
// elements: it asks every rank for its elements, and knows nothing of cuts and intervals.
#include "plan/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "plan_machines.h"

namespace fairring {
namespace {

using Sites = std::vector<std::vector<int>>;

constexpr std::uint64_t kGrain = 64;

const Sites kTopologies[] = {
    {{1}},
    {{2}},
    {{5}},
    {{1, 1}},
    {{1, 1, 1}},
    {{2, 2}},
    {{4, 4}},
    {{2, 2, 2, 2}},
    {{8, 7}},
    {{7, 8}},
    {{3, 1}},
    {{1, 3}},
    {{4, 3, 2}},
    {{2, 3, 2, 5}},
    {{2}, {2}},
    {{2, 2}, {2, 2}},
    {{3, 2}, {4}},
    {{1}, {1, 1}, {2}},
    {{2, 1}, {3, 3, 3}, {1}},
    {{4, 3}, {5, 2, 2}, {3, 1}},
};

std::vector<std::uint64_t> sizesFor(const Topology& topology) {
  const auto world = static_cast<std::uint64_t>(topology.world());
  return {0, 1, 63, 64, 65, world - 1, world, world + 1, 64 * world + 1, 100'003};
}

std::vector<Layout> layoutsOfAll(const Topology& topology, std::uint64_t bytes) {
  std::vector<Layout> layouts;
  for (int rank = 0; rank < topology.world(); ++rank) {
    layouts.push_back(layoutSlice(topology, rank, bytes));
  }
  return layouts;
}

int groupOfRank(const Topology& topology, int rank, int level) {
  if (level < 0) return rank;
  if (level == 0) return topology.machineOf(rank);
  return level == 1 ? topology.siteOf(topology.machineOf(rank)) : 0;
}

class LayoutOf : public testing::TestWithParam<Sites> {
 protected:
  template <class Check>
  void atEverySize(Check check) const {
    const Topology topology = onSites(GetParam());
    for (const std::uint64_t bytes : sizesFor(topology)) {
      SCOPED_TRACE(testing::Message() << topology.describe() << ", bytes: " << bytes);
      check(topology, layoutsOfAll(topology, bytes));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Plan, LayoutOf, testing::ValuesIn(kTopologies), [](const auto& info) {
  std::string text;
  for (const auto& site : info.param) {
    text += text.empty() ? "Site" : "AndSite";
    for (const int ranks : site) text += "_" + std::to_string(ranks);
  }
  return text + "_" + std::to_string(info.index);
});

TEST_P(LayoutOf, GivesEveryByteToOneRankOfEachGroup) {
  atEverySize([](const Topology& topology, const std::vector<Layout>& layouts) {
    for (const int level : topology.levels()) {
      std::map<int, std::vector<int>> owners;  // of each group, how many ranks' shards hold a byte
      for (int rank = 0; rank < topology.world(); ++rank) {
        auto& counts = owners[groupOfRank(topology, rank, level)];
        counts.resize(layouts[rank].bytes);
        for (const Rail& rail : layouts[rank].at(level).rails) {
          for (auto i = rail.shards[rail.self].begin; i < rail.shards[rail.self].end; ++i) ++counts[i];
        }
      }
      for (const auto& [group, counts] : owners) {
        ASSERT_EQ(counts, std::vector<int>(counts.size(), 1)) << "level " << level << ", group " << group;
      }
    }
  });
}

TEST_P(LayoutOf, PassesOnAtEachLevelWhatTheLevelBelowLeft) {
  atEverySize([](const Topology& topology, const std::vector<Layout>& layouts) {
    for (int rank = 0; rank < topology.world(); ++rank) {
      std::vector<bool> held(layouts[rank].bytes, true);
      for (const LevelLayout& level : layouts[rank].levels) {
        std::vector<bool> inRails(held.size(), false);
        std::vector<bool> inShards(held.size(), false);
        for (const Rail& rail : level.rails) {
          for (auto i = rail.range.begin; i < rail.range.end; ++i) inRails[i] = true;
          for (auto i = rail.shards[rail.self].begin; i < rail.shards[rail.self].end; ++i) inShards[i] = true;
        }
        ASSERT_EQ(inRails, held) << "rank " << rank << ", level " << level.level;
        held = inShards;
      }
    }
  });
}

TEST_P(LayoutOf, CutsEachRailIntoOneShardPerOwnerInOrder) {
  atEverySize([](const Topology&, const std::vector<Layout>& layouts) {
    for (const Layout& layout : layouts) {
      for (const LevelLayout& level : layout.levels) {
        std::uint64_t end = 0;
        for (const Rail& rail : level.rails) {
          ASSERT_GE(rail.range.begin, end);
          ASSERT_GT(rail.range.size(), 0);
          ASSERT_EQ(rail.shards.size(), rail.owners.size());
          end = rail.range.begin;
          for (const Range& shard : rail.shards) {
            ASSERT_EQ(shard.begin, end);
            end = shard.end;
            ASSERT_TRUE(end % kGrain == 0 || end == layout.bytes) << end;
          }
          ASSERT_EQ(end, rail.range.end);
        }
      }
    }
  });
}

TEST_P(LayoutOf, NamesOneOwnerOfEachGroupInTheOrderOfTheGroups) {
  atEverySize([](const Topology& topology, const std::vector<Layout>& layouts) {
    for (int rank = 0; rank < topology.world(); ++rank) {
      for (const LevelLayout& level : layouts[rank].levels) {
        std::vector<int> groups;  // of the level below, that stand in this rank's group
        for (int other = 0; other < topology.world(); ++other) {
          if (groupOfRank(topology, other, level.level) != groupOfRank(topology, rank, level.level)) continue;
          const int group = groupOfRank(topology, other, level.level - 1);
          if (std::ranges::find(groups, group) == groups.end()) groups.push_back(group);
        }
        for (const Rail& rail : level.rails) {
          std::vector<int> ofOwners;
          for (const int owner : rail.owners) ofOwners.push_back(groupOfRank(topology, owner, level.level - 1));
          ASSERT_EQ(ofOwners, groups);
          ASSERT_EQ(rail.owners[rail.self], rank);
        }
      }
    }
  });
}

TEST_P(LayoutOf, IsTheSameForAllOwnersOfARail) {
  atEverySize([](const Topology&, const std::vector<Layout>& layouts) {
    for (const Layout& layout : layouts) {
      for (const LevelLayout& level : layout.levels) {
        for (const Rail& rail : level.rails) {
          for (const int owner : rail.owners) {
            const auto& theirs = layouts[owner].at(level.level).rails;
            const auto same =
                std::ranges::find_if(theirs, [&](const Rail& other) { return other.range == rail.range; });
            ASSERT_NE(same, theirs.end()) << "rank " << owner << " does not know the rail";
            ASSERT_EQ(same->owners, rail.owners);
            ASSERT_EQ(same->shards, rail.shards);
          }
        }
      }
    }
  });
}

TEST_P(LayoutOf, LetsNoRankCarryMoreThanItsPartOfTheMachineAnd64Bytes) {
  atEverySize([](const Topology& topology, const std::vector<Layout>& layouts) {
    for (int rank = 0; rank < topology.world(); ++rank) {
      const std::uint64_t ranks = topology.ranksOf(topology.machineOf(rank)).size();
      std::uint64_t held = 0;
      for (const Rail& rail : layouts[rank].at(0).rails) held += rail.shards[rail.self].size();
      ASSERT_LE(held, (layouts[rank].bytes + ranks - 1) / ranks + 64);
    }
  });
}

std::size_t railsOn(const Topology& topology, int machine, std::uint64_t bytes) {
  std::size_t rails = 0;
  for (const int rank : topology.ranksOf(machine)) {
    rails += layoutSlice(topology, rank, bytes).at(1).rails.size();
  }
  return rails;
}

TEST(Layout, HasAsManyRailsAsLocalRanksOnEqualMachines) {
  EXPECT_EQ(railsOn(onOneSite({4, 4, 4}), 0, 1 << 20), 4);
  EXPECT_EQ(railsOn(onOneSite({1, 1}), 0, 1 << 20), 1);
}

TEST(Layout, Has14RailsOnMachinesOf7And8Ranks) {
  EXPECT_EQ(railsOn(onOneSite({7, 8}), 0, 1 << 20), 14);
  EXPECT_EQ(railsOn(onOneSite({7, 8}), 1, 1 << 20), 14);
}

TEST(Layout, GivesEachRankOfUnequalMachinesAnEvenPart) {
  const std::uint64_t bytes = 1'000'000;
  for (const std::vector<int>& machines : {std::vector<int>{8, 7}, {3, 1}, {4, 3, 2}}) {
    const Topology topology = onOneSite(machines);
    for (int rank = 0; rank < topology.world(); ++rank) {
      const auto ranks = static_cast<std::uint64_t>(machines[topology.machineOf(rank)]);
      std::uint64_t onTheNetwork = 0;
      const Layout layout = layoutSlice(topology, rank, bytes);
      for (const Rail& rail : layout.at(1).rails) onTheNetwork += rail.range.size();
      EXPECT_LE(onTheNetwork, (bytes + ranks - 1) / ranks + 64) << topology.describe();
      EXPECT_GE(onTheNetwork + 64, bytes / ranks) << topology.describe();
    }
  }
}

TEST(Layout, ServesATopologyOf1024Ranks) {
  std::vector<int> machines;
  for (int i = 0; i < 128; ++i) machines.push_back(4 + i % 9);
  const Topology topology = onOneSite(machines);
  ASSERT_GT(topology.world(), 1000);
  const Layout layout = layoutSlice(topology, 0, 25 << 20);  // of a machine of 4
  EXPECT_EQ(layout.at(1).rails.size(), 11);                  // the others cut its quarter at 1/12 ... 1/5, 2/11 and 2/9
  for (const Rail& rail : layout.at(1).rails) EXPECT_EQ(rail.owners.size(), 128);
}

// Ranks that exchange data between the groups do so on the rails too: there are connections for every plan.
TEST(Layout, OfGroupsConnectsNobodyWhomTheRailsDoNot) {
  std::vector<int> unequal(300, 1);
  unequal[7] = 3;
  for (const std::vector<int>& machines : {std::vector<int>(12, 2), {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3}, unequal}) {
    const Topology topology = onOneSite(machines);
    const Topology grouped = topology.inGroups();
    for (int rank = 0; rank < topology.world(); rank += 1 + topology.world() / 32) {
      std::set<int> onRails;
      const Layout flat = layoutSlice(topology, rank, 1 << 20);
      for (const Rail& rail : flat.at(1).rails) onRails.insert(rail.owners.begin(), rail.owners.end());
      for (const std::uint64_t bytes : {1 << 20, 1000, 17}) {
        const Layout inGroups = layoutSlice(grouped, rank, bytes);
        for (const LevelLayout& level : inGroups.levels) {
          for (const Rail& rail : level.rails) {
            for (const int owner : rail.owners) EXPECT_TRUE(level.level == 0 || onRails.contains(owner));
          }
        }
      }
    }
  }
}

TEST(Layout, ThrowsWhereThereIsNoSuchLevel) {
  EXPECT_THROW(layoutSlice(onOneSite({2}), 0, 10).at(1), std::out_of_range);
}

TEST(Piece, IsAsLongAsTheOthersOrOneShorter) {
  EXPECT_EQ(piece({100, 140}, 3, 0), (Range{100, 113}));
  EXPECT_EQ(piece({100, 140}, 3, 1), (Range{113, 126}));
  EXPECT_EQ(piece({100, 140}, 3, 2), (Range{126, 140}));
  EXPECT_EQ(piece({100, 101}, 2, 0), (Range{100, 100}));
}

}  // namespace
}  // namespace fairring
