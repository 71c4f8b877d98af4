// The memory that slices need, exact for a layout and bounded for all ranks, and the loads that the bounds come from.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "plan/planner.h"
#include "plan_machines.h"

namespace fairring {
namespace {

using Sites = std::vector<std::vector<int>>;

constexpr std::uint64_t kMiB = 1 << 20;
const Plan kTwoShot = hierarchicalPlan({0, 1}, false);
const Plan kOneShot = hierarchicalPlan({0, 1}, true);

TEST(Staging, HoldsTheImageAndAShardOfEveryPeer) {
  const Layout layout = layoutSlice(onOneSite({1, 1, 1}), 0, 19'200);  // 300 grains, 100 for each
  EXPECT_EQ(receiveOffset(kTwoShot, layout, 1), 19'200);
  EXPECT_EQ(stagingBytes(kTwoShot, layout), 19'200 + 2 * 6400);
  EXPECT_EQ(stagingBytes(kOneShot, layout), 19'200 + 2 * 19'200);
}

TEST(Staging, NeedsNoPlaceForContributionsInsideTheMachine) {
  const Layout layout = layoutSlice(onOneSite({3}), 0, 19'204);
  EXPECT_EQ(stagingBytes(hierarchicalPlan({0}, false), layout), 19'204 + 60);  // rounded up to 64 bytes
}

TEST(Staging, PutsTheStepsOneAfterTheOther) {
  const Topology topology = onSites({{1, 1}, {1, 1}});
  const Layout layout = layoutSlice(topology, 0, 25'600);
  const Plan plan = hierarchicalPlan({0, 1, 2}, false);
  EXPECT_EQ(receiveOffset(plan, layout, 1), 25600);          // RS1: half a slice of the one peer
  EXPECT_EQ(receiveOffset(plan, layout, 2), 25600 + 12800);  // RS2: a quarter
  EXPECT_EQ(stagingBytes(plan, layout), 25600 + 12800 + 6400);
}

TEST(Staging, BoundHoldsForEveryRankAndEverySmallerSlice) {
  const Sites table[] = {{{2, 2}},         {{8, 7}},      {{3, 1}},           {{4, 3, 2}},
                         {{2, 2}, {2, 2}}, {{3, 2}, {4}}, {{1}, {1, 1}, {2}}, {{4, 3}, {5, 2, 2}, {3, 1}}};
  for (const Sites& sites : table) {
    const Topology topology = onSites(sites);
    for (const bool oneShot : {false, true}) {
      const Plan plan = hierarchicalPlan(topology.levels(), oneShot);
      for (const std::uint64_t bound : {64, 128, 1000, 4096, 10'000, 200'000}) {
        const std::uint64_t worst = worstStagingBytes(plan, loadsOf(topology), bound);
        for (const std::uint64_t bytes : {bound, bound - 64, bound / 2, bound / 3}) {
          for (int rank = 0; rank < topology.world(); ++rank) {
            ASSERT_LE(stagingBytes(plan, layoutSlice(topology, rank, bytes)), worst)
                << topology.describe() << ", " << describe(plan) << ", slice of " << bytes << " B, rank " << rank;
          }
        }
      }
    }
  }
}

TEST(Staging, BoundIsCloseToTheNeedOfLargeSlices) {
  for (const Sites& sites : {Sites{{2, 2}}, Sites{{8, 7}}, Sites{{4, 3, 2}}, Sites{{2, 2}, {2, 2}}}) {
    const Topology topology = onSites(sites);
    const Plan plan = hierarchicalPlan(topology.levels(), false);
    std::uint64_t most = 0;
    for (int rank = 0; rank < topology.world(); ++rank) {
      most = std::max(most, stagingBytes(plan, layoutSlice(topology, rank, 8 * kMiB)));
    }
    EXPECT_LE(worstStagingBytes(plan, loadsOf(topology), 8 * kMiB), most + 4096) << topology.describe();
  }
}

TEST(Load, CountsRailsAndOwnersOfEveryKindOfRankOnce) {
  const std::vector<Load> equal = loadsOf(onOneSite({4, 4}));
  ASSERT_EQ(equal.size(), 1);
  EXPECT_EQ(equal[0].levels[0], (LevelLoad{1, 4}));
  EXPECT_EQ(equal[0].levels[1], (LevelLoad{1, 2}));
  const std::vector<Load> unequal = loadsOf(onOneSite({3, 1}));
  ASSERT_EQ(unequal.size(), 2);
  EXPECT_EQ(unequal[0].levels[0], (LevelLoad{1, 1}));
  EXPECT_EQ(unequal[0].levels[1], (LevelLoad{3, 2}));
  EXPECT_EQ(unequal[1].levels[1], (LevelLoad{1, 2}));
}

}  // namespace
}  // namespace fairring
