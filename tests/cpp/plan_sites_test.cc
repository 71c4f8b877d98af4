// The planner's predictions for sites, and the plans that it chooses between them.
#include <gtest/gtest.h>

#include "plan/cost_rows.h"
#include "plan/planner.h"
#include "plan_machines.h"

namespace fairring {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr CostRow kFree{0, 0, 1e30, 1e30};

const Plan kOneShot = hierarchicalPlan({0, 2}, true);
const Plan kTwoShot = hierarchicalPlan({0, 2}, false);

Planner planner(const Topology& topology, const CostRow& site, std::uint64_t memory = 50 * kMiB) {
  return Planner(topology, {memory, 25 * kMiB, {kFree, kFree, site}});
}

TEST(Sites, HaveTheirLatencyOnceForSlicesThatAreOnTheirWayTogether) {
  const Planner two = planner(onSites({{1}, {1}}), {1, 0, 64 * 1000, 1e30});
  EXPECT_NEAR(two.predictSeconds(kOneShot, 64 * 1000, 64 * 1000), 1 + 1, 1e-6);
  EXPECT_NEAR(two.predictSeconds(kOneShot, 10 * 64 * 1000, 64 * 1000), 1 + 10, 1e-6);
}

TEST(Sites, KeepSlicesWaitingWhereStagingHoldsFewOfThem) {
  const std::uint64_t slice = kMiB;  // by one-shot twice its bytes of staging, so two of them
  const Planner two = planner(onSites({{1}, {1}}), {10, 0, 1e30, 1e30}, 5 * kMiB);
  EXPECT_NEAR(two.predictSeconds(kOneShot, 11 * slice, slice), 10 + 10 * 10 / 2.0, 1e-6);
}

TEST(Sites, ThatAreTwoTakeOneTripForAnySize) {
  const Planner two(onSites({{2, 2}, {2, 2}}), {50 * kMiB, 25 * kMiB, builtInRows("tcp", "tcp")});
  for (const std::uint64_t bytes : {std::uint64_t{4}, 64 * kMiB}) {
    EXPECT_EQ(describe(two.choose(bytes).plan), "RS0 RS1 AR2 AG1 AG0");
  }
}

TEST(Sites, ThatAreFourTakeTwoForMany) {
  const Planner four(onSites({{1}, {1}, {1}, {1}}), {50 * kMiB, 25 * kMiB, builtInRows("tcp", "tcp")});
  EXPECT_EQ(four.choose(4).plan, kOneShot);
  EXPECT_EQ(four.choose(64 * kMiB).plan, kTwoShot);
}

}  // namespace
}  // namespace fairring
