// Plans, predictions and slice sizes. Cost rows here are round numbers, so that expected values can be worked out by
// hand.
#include "plan/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "plan_machines.h"

namespace fairring {
namespace {

using Sites = std::vector<std::vector<int>>;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr CostRow kFree{0, 0, 1e30, 1e30};
constexpr CostRow kMemory{1e-5, 1e-6, 1e10, 1e10};
constexpr CostRow kNetwork{1e-4, 1e-6, 1e8, 1e10};

PlannerSettings settings(std::uint64_t memory = 50 * kMiB, std::uint64_t slice = 25 * kMiB) {
  return {memory, slice, {kMemory, kNetwork, kNetwork}};
}

const Plan kTwoShot = hierarchicalPlan({0, 1}, false);
const Plan kOneShot = hierarchicalPlan({0, 1}, true);

TEST(HierarchicalPlan, ScattersDownTheLevelsAndGathersBackUp) {
  EXPECT_EQ(describe(hierarchicalPlan({0}, false)), "RS0 AG0");
  EXPECT_EQ(describe(hierarchicalPlan({0, 1}, false)), "RS0 RS1 AG1 AG0");
  EXPECT_EQ(describe(hierarchicalPlan({0, 2}, false)), "RS0 RS2 AG2 AG0");
  EXPECT_EQ(describe(hierarchicalPlan({0, 1, 2}, false)), "RS0 RS1 RS2 AG2 AG1 AG0");
}

TEST(HierarchicalPlan, HasFewOwnersAtTheFirstLevelAboveTheMachine) {
  EXPECT_EQ(describe(hierarchicalPlan({0}, false, 4)), "RS0 AG0");
  EXPECT_EQ(describe(hierarchicalPlan({0, 1}, false, 4)), "RS0 RS1/4 AG1/4 AG0");
  EXPECT_EQ(describe(hierarchicalPlan({0, 1, 2}, false, 4)), "RS0 RS1/4 RS2 AG2 AG1/4 AG0");
  EXPECT_EQ(describe(hierarchicalPlan({0, 1, 2}, true, 4)), "RS0 RS1/4 AR2 AG1/4 AG0");
}

TEST(HierarchicalPlan, MakesTheTopmostLevelOneStepIfAskedTo) {
  EXPECT_EQ(describe(hierarchicalPlan({0}, true)), "RS0 AG0");
  EXPECT_EQ(describe(hierarchicalPlan({0, 1}, true)), "RS0 AR1 AG0");
  EXPECT_EQ(describe(hierarchicalPlan({0, 1, 2}, true)), "RS0 RS1 AR2 AG1 AG0");
}

TEST(Prediction, IsLatencyPlusMessagesPlusBytesPlusSumsOfEachStep) {
  PlannerSettings onlyNetwork = settings();
  onlyNetwork.rows = {kFree, {1, 0.01, 100, 1000}};
  const Planner planner(onOneSite({1, 1, 1, 1}), onlyNetwork);
  constexpr std::uint64_t kSlice = 64 * 100;
  // RS1: 3 messages, 3/4 of the slice each way, 4 shards of a quarter summed; AG1 the same without the sum.
  EXPECT_DOUBLE_EQ(planner.predictSeconds(kTwoShot, kSlice, kSlice), (1 + 0.03 + 48 + 6.4) + (1 + 0.03 + 48));
  EXPECT_DOUBLE_EQ(planner.predictSeconds(kOneShot, kSlice, kSlice), 1 + 0.03 + 192 + 25.6);
}

TEST(Prediction, OverlapsSlicesSoThatOnlyTheSlowestLevelCountsForEach) {
  PlannerSettings latencies = settings();
  latencies.rows = {{1, 0, 1e30, 1e30}, {10, 0, 1e30, 1e30}};
  const Planner planner(onOneSite({2, 2}), latencies);
  EXPECT_DOUBLE_EQ(planner.predictSeconds(kTwoShot, 640, 640), 2 + 20);
  EXPECT_DOUBLE_EQ(planner.predictSeconds(kTwoShot, 3 * 640, 640), 2 + 3 * 20);
  EXPECT_DOUBLE_EQ(planner.predictSeconds(kOneShot, 3 * 640, 640), 2 + 3 * 10);
}

// 8 machines of 1 rank, 2 owners: an owner receives 7 messages and sends 1, of half a slice each, and sums 8 halves.
TEST(Prediction, OfFewOwnersIsThatOfAnOwnerForASliceAlone) {
  PlannerSettings onlyNetwork = settings();
  onlyNetwork.rows = {kFree, {1, 0.01, 100, 1000}};
  const Planner planner(onOneSite({1, 1, 1, 1, 1, 1, 1, 1}), onlyNetwork);
  const Plan few = hierarchicalPlan({0, 1}, false, 2);
  constexpr std::uint64_t kSlice = 64 * 100;
  const double scatter = 1 + 0.01 * 4 + 7 * kSlice / 2 / 100.0 + 8 * kSlice / 2 / 1000.0;
  const double gather = 1 + 0.01 * 4 + 7 * kSlice / 2 / 100.0;
  EXPECT_NEAR(planner.predictSeconds(few, kSlice, kSlice), scatter + gather, 1e-9);
}

// In four turns everyone owns once: a rank sends 2 messages as one of seven others, or 1 as an owner, and 7 to gather.
TEST(Prediction, OfFewOwnersIsTheMeanOfTheirTurnsForManySlices) {
  PlannerSettings messages = settings();
  messages.rows = {kFree, {0, 1, 1e30, 1e30}};
  const Planner planner(onOneSite({1, 1, 1, 1, 1, 1, 1, 1}), messages);
  constexpr std::uint64_t kSlice = 64 * 100;
  constexpr std::uint64_t kSlices = 101;
  EXPECT_NEAR(planner.predictSeconds(kTwoShot, kSlices * kSlice, kSlice), kSlices * 14, 1e-9);
  const Plan few = hierarchicalPlan({0, 1}, false, 2);
  EXPECT_NEAR(planner.predictSeconds(few, kSlices * kSlice, kSlice), (kSlices - 1) * 4 + 8, 1e-9);
}

TEST(Prediction, OfFewOwnersHasNoMoreSlicesAtWorkThanStagingHolds) {
  PlannerSettings bytes = settings(4 * kMiB);
  bytes.rows = {kFree, {0, 0, 1, 1e30}};
  const Planner planner(onOneSite({1, 1, 1, 1, 1, 1, 1, 1}), bytes);
  const Plan few = hierarchicalPlan({0, 1}, false, 1);  // an owner holds its image and seven contributions
  const double one = planner.predictSeconds(few, kMiB / 5, kMiB / 5);
  const double more = planner.predictSeconds(few, kMiB / 5 * 11, kMiB / 5);
  EXPECT_NEAR(more / one, 1 + 10 / 2.0, 0.01);  // two of these in 4 MiB
}

TEST(Prediction, CountsTheLastSliceByItsOwnBytes) {
  PlannerSettings bytes = settings();
  bytes.rows = {kFree, {0, 0, 1, 1e30}};
  const Planner planner(onOneSite({1, 1}), bytes);
  EXPECT_NEAR(planner.predictSeconds(kTwoShot, 6400 + 64, 6400), 6464, 1);
}

TEST(Prediction, IsOfTheBusiestRank) {
  const Planner even(onOneSite({2, 2}), settings());
  const Planner uneven(onOneSite({3, 1}), settings());  // the rank that is alone carries all of it
  EXPECT_GT(uneven.predictSeconds(kTwoShot, kMiB, kMiB), 1.8 * even.predictSeconds(kTwoShot, kMiB, kMiB));
}

TEST(Choice, IsOneShotForFewBytesAndTwoShotForManyOnFourMachines) {
  const Planner planner(onOneSite({2, 2, 2, 2}), settings());
  EXPECT_EQ(describe(planner.choose(1, 4).plan), "RS0 AR1 AG0");
  EXPECT_EQ(describe(planner.choose(10 * kMiB, 4).plan), "RS0 RS1 AG1 AG0");
}

TEST(Choice, OnOneMachineHasOnlyTheMachinesSteps) {
  EXPECT_EQ(describe(Planner(onOneSite({4}), settings()).choose(kMiB, 4).plan), "RS0 AG0");
  EXPECT_EQ(describe(Planner(onOneSite({1}), settings()).choose(kMiB, 4).plan), "RS0 AG0");
}

TEST(Choice, TakesFewerStepsWherePredictionsAreEqual) {
  PlannerSettings free = settings();
  free.rows = {kFree, {0, 0, 1e300, 1e300}};
  free.rows[0].bytesPerSecond = free.rows[0].summedBytesPerSecond = 1e300;
  EXPECT_EQ(describe(Planner(onOneSite({2, 2}), free).choose(0, 4).plan), "RS0 AR1 AG0");
}

TEST(Choice, OfThreeLevelsMayBeOneShotBetweenTheSites) {
  EXPECT_EQ(describe(Planner(onSites({{2, 2}, {2, 2}}), settings()).choose(1, 4).plan), "RS0 RS1 AR2 AG1 AG0");
}

TEST(Choice, IsOfFewOwnersWhereMessagesCostMoreThanTheirBytes) {
  const auto shards = [](double perMessage, std::uint64_t bytes) {
    PlannerSettings messages = settings(4 * kMiB);
    messages.rows = {kMemory, {1e-4, perMessage, 1e9, 1e10}};
    const Planner planner(onOneSite(std::vector<int>(6, 1)), messages);
    const Plan plan = planner.choose(bytes, 1).plan;
    return plan[1].verb == Verb::AllReduce ? -1 : plan[1].shards;
  };
  EXPECT_EQ(shards(0, 100 * kMiB), 0);
  EXPECT_EQ(shards(1e-6, 100 * kMiB), 0);
  EXPECT_GT(shards(1e-2, 100 * kMiB), 0);
  EXPECT_GE(shards(1e-4, 100 * kMiB) == 0 ? 6 : shards(1e-4, 100 * kMiB), shards(1e-2, 100 * kMiB));
}

TEST(Forecast, OfFewOwnersHasTheBytesOfTwoShotAndFewerMessages) {
  const Planner planner(onOneSite({1, 1, 1, 1, 1, 1, 1, 1}), settings(kMiB));
  const std::vector<Forecast> forecasts = planner.forecast(64 * kMiB);
  const auto twoShot = std::ranges::find(forecasts, kTwoShot, &Forecast::plan);
  const auto few = std::ranges::find(forecasts, hierarchicalPlan({0, 1}, false, 2), &Forecast::plan);
  ASSERT_TRUE(twoShot != forecasts.end() && few != forecasts.end());
  EXPECT_NEAR(static_cast<double>(few->levels[1].bytes), static_cast<double>(twoShot->levels[1].bytes), 1e5);
  EXPECT_EQ(twoShot->levels[1].messages, twoShot->slices * 14);
  EXPECT_EQ(few->levels[1].messages, few->slices * 4);  // 2 * 2 * 7/8, rounded up for each step
}

TEST(Forecast, CountsWhatTheBusiestRankSendsAtEachLevel) {
  const Planner planner(onOneSite({2, 2, 2, 2}), settings(1024 * kMiB));
  for (const Forecast& forecast : planner.forecast(64 * 800)) {
    const bool oneShot = forecast.plan == kOneShot;
    if (!oneShot && forecast.plan != kTwoShot) continue;
    EXPECT_EQ(forecast.slices, 1);
    EXPECT_EQ(forecast.levels[0].messages, 2);          // one peer, down and up
    EXPECT_EQ(forecast.levels[0].bytes, 2 * 64 * 800);  // in and out of staging
    EXPECT_EQ(forecast.levels[1].messages, oneShot ? 3 : 6);
    // Half of the call, bounded for every slice size by 64 bytes more: all of it to three, or three quarters twice.
    EXPECT_EQ(forecast.levels[1].bytes, (64 * 400 + 64) * 3 * (oneShot ? 4 : 2) / 4);
  }
}

TEST(Forecast, HasTheChoiceFirstAndItsPrediction) {
  const Planner planner(onOneSite({4, 4, 4}), settings());
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{4}, 64 * kMiB / 1024, kMiB, 25 * kMiB, 400 * kMiB}) {
    const std::vector<Forecast> forecasts = planner.forecast(bytes);
    ASSERT_EQ(forecasts.size(), 4);  // two-shot with 3 owners, 2 and 1, and one-shot
    EXPECT_EQ(forecasts[0].plan, planner.choose(bytes, 1).plan);
    EXPECT_EQ(forecasts[0].sliceBytes, planner.choose(bytes, 1).sliceElements);
    EXPECT_LE(forecasts[0].seconds, forecasts[1].seconds);
    EXPECT_DOUBLE_EQ(forecasts[0].seconds, planner.predictSeconds(forecasts[0].plan, bytes, forecasts[0].sliceBytes));
  }
}

TEST(SliceSize, IsTheWholeCallForSmallCallsRoundedUpTo64Bytes) {
  const Planner planner(onOneSite({2, 2}), settings());
  EXPECT_EQ(planner.choose(1, 4).sliceElements, 16);
  EXPECT_EQ(planner.choose(16, 4).sliceElements, 16);
  EXPECT_EQ(planner.choose(17, 4).sliceElements, 32);
  EXPECT_EQ(planner.choose(kMiB / 4, 4).sliceElements, kMiB / 4);
}

TEST(SliceSize, IsNeverZero) { EXPECT_EQ(Planner(onOneSite({2}), settings()).choose(0, 8).sliceElements, 8); }

TEST(SliceSize, CutsALargeCallSoThatItsLevelsOverlap) {
  PlannerSettings slowMemory = settings();
  slowMemory.rows[0].bytesPerSecond = 1e8;
  const Choice choice = Planner(onOneSite({2, 2}), slowMemory).choose(kMiB, 8);  // fits into one slice
  EXPECT_EQ(choice.sliceElements, kMiB / 4);
}

TEST(SliceSize, DoesNotCutWhereNothingOverlaps) {
  EXPECT_EQ(Planner(onOneSite({2}), settings()).choose(kMiB / 8, 4).sliceElements, kMiB / 8);
}

TEST(SliceSize, OnOneMachineIsTheLargestOfWhichTheCacheHoldsFour) {
  const Choice choice = Planner(onOneSite({4}), settings(50 * kMiB)).choose(64 * kMiB, 4);
  EXPECT_EQ(choice.stagingBytes, Planner::kCachedStagingBytes);
  EXPECT_EQ(choice.sliceElements * 4, Planner::kCachedStagingBytes / 4);
  EXPECT_EQ(Planner(onOneSite({4}), settings(kMiB)).choose(64 * kMiB, 4).stagingBytes, kMiB);
}

TEST(SliceSize, OnSeveralMachinesMayUseAllOfStaging) {
  EXPECT_EQ(Planner(onOneSite({2, 2}), settings(50 * kMiB)).choose(64 * kMiB, 4).stagingBytes, 50 * kMiB);
}

TEST(SliceSize, NeverExceedsTheSetting) {
  const Planner planner(onOneSite({2, 2}), settings(50 * kMiB, 100'000));
  const std::uint64_t bytes = planner.choose(100 * kMiB, 4).sliceElements * 4;
  EXPECT_LE(bytes, 100'000);
  EXPECT_GE(bytes, 99'000);
}

std::uint64_t pages(std::uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

TEST(SliceSize, IsTheLargestOfWhichStagingHoldsFour) {
  const Topology topology = onOneSite({2, 2});
  const Choice choice = Planner(topology, settings(8 * kMiB)).choose(1024 * kMiB, 4);
  const std::uint64_t bytes = choice.sliceElements * 4;
  const auto fourOf = [&](std::uint64_t slice) {
    return 4 * pages(worstStagingBytes(choice.plan, loadsOf(topology), slice));
  };
  EXPECT_EQ(bytes % 64, 0);
  EXPECT_LE(fourOf(bytes), 8 * kMiB);
  EXPECT_GT(fourOf(bytes + bytes / 100), 8 * kMiB);  // a call's slices are nearly equal, so a little smaller
}

TEST(SliceSize, LeavesFewerInFlightBeforeItGivesUp) {
  const Planner planner(onOneSite({1, 1}), settings(120 << 10));
  EXPECT_GE(planner.choose(kMiB, 8).sliceElements * 8, 60 << 10);
}

TEST(SliceSize, RefusesAMemoryThatHoldsNoSliceAndSaysHowMuchIsNeeded) {
  try {
    Planner(onOneSite({1, 1}), settings(64 << 10));
    FAIL() << "nothing was thrown";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.error().kind(), ErrorKind::Configuration);
    // The image of 64 KiB, the peer's contribution of half of that and a grain, in whole pages.
    EXPECT_EQ(failure.error().text(),
              "FAIRRING_TOTAL_MEMORY=65536 B holds no slice: on 2 machines of 1 ranks the smallest, of 65536 B, needs "
              "102400 B: raise it");
  }
  EXPECT_NO_THROW(Planner(onOneSite({1, 1}), settings(102'400)));
}

TEST(Staging, HoldsTheImageAndAShardOfEveryPeer) {
  const Layout layout = layoutSlice(onOneSite({1, 1, 1}), 0, 4800, 4);  // 300 grains, 100 for each
  EXPECT_EQ(receiveOffset(kTwoShot, layout, 1), 4800 * 4);
  EXPECT_EQ(stagingBytes(kTwoShot, layout), 4800 * 4 + 2 * 6400);
  EXPECT_EQ(stagingBytes(kOneShot, layout), 4800 * 4 + 2 * 4800 * 4);
}

TEST(Staging, NeedsNoPlaceForContributionsInsideTheMachine) {
  const Layout layout = layoutSlice(onOneSite({3}), 0, 4801, 4);
  EXPECT_EQ(stagingBytes(hierarchicalPlan({0}, false), layout), 4801 * 4 + 60);  // rounded up to 64 bytes
}

TEST(Staging, PutsTheStepsOneAfterTheOther) {
  const Topology topology = onSites({{1, 1}, {1, 1}});
  const Layout layout = layoutSlice(topology, 0, 6400, 4);
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
    const int first = topology.levels()[1];
    for (const FewOwners& few : {FewOwners{}, {first, 1, 0}, {first, 1, 1}, {first, 2, 1}, {first, 4, 0}}) {
      for (const bool oneShot : {false, true}) {
        const Plan plan = hierarchicalPlan(topology.levels(), oneShot, few.shards);
        if (few.shards > 0 && oneShot && topology.levels().size() == 2) continue;  // has no shards
        const std::vector<Load> loads = loadsOf(topology, few);
        for (const std::uint64_t bound : {64, 128, 1000, 4096, 10'000, 200'000}) {
          const std::uint64_t worst = worstStagingBytes(plan, loads, bound);
          for (const std::uint64_t bytes : {bound, bound - 64, bound / 2, bound / 3}) {
            for (int rank = 0; rank < topology.world(); ++rank) {
              ASSERT_LE(stagingBytes(plan, layoutSlice(topology, rank, bytes / 2, 2, few)), worst)
                  << topology.describe() << ", " << describe(plan) << ", turn " << few.turn << ", slice of " << bytes
                  << " B, rank " << rank;
            }
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
      most = std::max(most, stagingBytes(plan, layoutSlice(topology, rank, 2 * kMiB, 4)));
    }
    EXPECT_LE(worstStagingBytes(plan, loadsOf(topology), 8 * kMiB), most + 4096) << topology.describe();
  }
}

TEST(Load, CountsRailsAndOwnersOfEveryKindOfRankOnce) {
  const std::vector<Load> equal = loadsOf(onOneSite({4, 4}));
  ASSERT_EQ(equal.size(), 1);
  EXPECT_EQ(equal[0].levels[0], (LevelLoad{1, 4, 4}));
  EXPECT_EQ(equal[0].levels[1], (LevelLoad{1, 2, 2}));
  const std::vector<Load> unequal = loadsOf(onOneSite({3, 1}));
  ASSERT_EQ(unequal.size(), 2);
  EXPECT_EQ(unequal[0].levels[0], (LevelLoad{1, 1, 1}));
  EXPECT_EQ(unequal[0].levels[1], (LevelLoad{3, 2, 2}));
  EXPECT_EQ(unequal[1].levels[1], (LevelLoad{1, 2, 2}));
}

}  // namespace
}  // namespace fairring
