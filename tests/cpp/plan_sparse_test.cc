// The choice for sparse calls: of the values, once it is known who has how many rows.
#include <gtest/gtest.h>

#include "plan/cost_rows.h"
#include "plan_machines.h"

namespace fairring {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

Planner plannerOf(int machines, int ranks) {
  return {onOneSite(std::vector<int>(static_cast<std::size_t>(machines), ranks)),
          {50 * kMiB, 25 * kMiB, builtInRows("tcp")}};
}

std::string planOf(int machines, std::uint64_t bytes, std::uint64_t most) {
  return describe(plannerOf(machines, 2).chooseSparse(bytes, most).plan);
}

TEST(SparsePlan, IsOneShotBetweenTwoMachinesThatShareFewRows) {
  EXPECT_EQ(planOf(2, 100 * kMiB, 50 * kMiB), "RS0 AR1 AG0");
  EXPECT_EQ(planOf(2, 100 * kMiB, 60 * kMiB), "RS0 AR1 AG0");
}

TEST(SparsePlan, IsTwoShotWhereManyMachinesShareTheirRows) {
  EXPECT_EQ(planOf(6, 600 * kMiB, 100 * kMiB), "RS0 AR1 AG0");
  EXPECT_EQ(planOf(6, 100 * kMiB, 100 * kMiB), "RS0 RS1 AG1 AG0");
}

// What is summed of one slice travels of the next.
TEST(SparsePlan, IsTheOneOfFewestBytesWhereSumsTakeLessTimeThanTheNetwork) {
  EXPECT_EQ(planOf(2, 188 * kMiB, 150 * kMiB), "RS0 AR1 AG0") << "half of 200 000 rows on each of 2 x 2 ranks";
  EXPECT_EQ(planOf(2, 150 * kMiB, 150 * kMiB), "RS0 AR1 AG0");
  EXPECT_EQ(planOf(3, 188 * kMiB, 150 * kMiB), "RS0 RS1 AG1 AG0");
}

TEST(SparsePlan, CutsSlicesWithRoomForContributions) {
  for (const int machines : {1, 2, 5}) {
    const Planner planner = plannerOf(machines, 2);
    for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, kMiB, 700 * kMiB}) {
      const Choice sparse = planner.chooseSparse(bytes, bytes);
      EXPECT_EQ(sparse.sliceElements % 64, 0U);
      EXPECT_LE(3 * sparse.sliceStagingBytes, sparse.stagingBytes);
    }
  }
}

}  // namespace
}  // namespace fairring
