// Slices that are cut on multiples of several grains: their cuts, and the staging that they need.
#include <gtest/gtest.h>

#include "plan/grain.h"
#include "plan/layout.h"
#include "plan/planner.h"
#include "plan_machines.h"

namespace fairring {
namespace {

using Sites = std::vector<std::vector<int>>;

constexpr std::uint64_t kTogether = 8;
constexpr std::uint64_t kCut = kTogether * kGrainBytes;

const Sites kTable[] = {{{1}, {1}}, {{2, 2}, {2, 2}}, {{3, 2}, {4}}, {{1}, {1, 1}, {2}}, {{4, 3}, {5, 2, 2}, {3, 1}}};

TEST(CoarseCuts, FallOnMultiplesAndLeaveNothingOut) {
  for (const Sites& sites : kTable) {
    const Topology topology = onSites(sites);
    for (const std::uint64_t bytes : {4, 512, 516, 5'000, 100'004}) {
      std::uint64_t owned = 0;
      for (int rank = 0; rank < topology.world(); ++rank) {
        const Layout layout = inBytes(layoutSlice(topology, rank, ceilOf(bytes, kTogether)), kTogether, bytes);
        ASSERT_EQ(layout.bytes, bytes);
        for (const LevelLayout& level : layout.levels) {
          for (const Rail& rail : level.rails) {
            for (const std::uint64_t cut : {rail.range.begin, rail.range.end, rail.own().begin, rail.own().end})
              ASSERT_TRUE(cut % kCut == 0 || cut == bytes) << topology.describe() << ", cut at " << cut;
            ASSERT_LT(rail.range.begin, rail.range.end);
          }
        }
        for (const Rail& rail : layout.levels.back().rails) owned += rail.own().size();
      }
      EXPECT_EQ(owned, bytes) << topology.describe();
    }
  }
}

TEST(CoarseCuts, NeedNoMoreStagingThanIsReserved) {
  for (const Sites& sites : kTable) {
    const Topology topology = onSites(sites);
    for (const bool oneShot : {false, true}) {
      const Plan plan = hierarchicalPlan(topology.levels(), oneShot);
      for (const std::uint64_t bound : {64, 512, 10'000, 200'000}) {
        const std::uint64_t worst = worstStagingBytes(plan, loadsOf(topology), bound, kTogether);
        EXPECT_GE(worst, worstStagingBytes(plan, loadsOf(topology), bound));
        for (const std::uint64_t bytes : {bound, bound / 2, kCut}) {
          for (int rank = 0; rank < topology.world(); ++rank) {
            const Layout units = layoutSlice(topology, rank, ceilOf(bytes, kTogether));
            ASSERT_LE(stagingBytes(plan, inBytes(units, kTogether, bytes)), worst)
                << topology.describe() << ", " << describe(plan) << ", " << bytes << " B";
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace fairring
