// Plans, predictions and slice sizes. Cost rows here are round numbers, so that expected values can be worked out by
// hand.
#include "plan/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "plan/cost_rows.h"
#include "plan/grain.h"
#include "plan_machines.h"

namespace fairring {
namespace {

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

TEST(HierarchicalPlan, MakesTheTopmostLevelOneStepIfAskedTo) {
  EXPECT_EQ(describe(hierarchicalPlan({0}, true)), "AR0");
  EXPECT_EQ(describe(hierarchicalPlan({0, 1}, true)), "RS0 AR1 AG0");
  EXPECT_EQ(describe(hierarchicalPlan({0, 1, 2}, true)), "RS0 RS1 AR2 AG1 AG0");
}

// Nine machines in three groups: the scatter within a group, the relay from group to group, which the third hears of
// when the second has it, and the all-gather.
TEST(Prediction, OfARelayWaitsForItsOwnStepAloneAsOftenAsItIsPassedOn) {
  PlannerSettings latencies = settings();
  latencies.rows = {kFree, {1, 0, 1e30, 1e30}};
  const Planner planner(onOneSite(std::vector<int>(9, 1), {.groups = 4, .only = 4}), latencies);
  EXPECT_DOUBLE_EQ(planner.predictSeconds(broadcastPlan({0, 1, 2}, 1), 6400, 6400), 1 + 2 + 1);
  EXPECT_DOUBLE_EQ(planner.predictSeconds(broadcastPlan({0, 1, 2}, 2), 6400, 6400), 1 + 1 + 1);
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

TEST(PlanChoice, IsOneShotForFewBytesAndTwoShotForManyOnFourMachines) {
  const Planner planner(onOneSite({2, 2, 2, 2}), settings());
  EXPECT_EQ(describe(planner.choose(4).plan), "RS0 AR1 AG0");
  EXPECT_EQ(describe(planner.choose(40 * kMiB).plan), "RS0 RS1 AG1 AG0");
}

TEST(PlanChoice, OnOneMachineHasOnlyTheMachinesSteps) {
  EXPECT_EQ(describe(Planner(onOneSite({4}), settings()).choose(4 * kMiB).plan), "RS0 AG0");
  EXPECT_EQ(describe(Planner(onOneSite({1}), settings()).choose(4 * kMiB).plan), "RS0 AG0");
}

TEST(PlanChoice, WithinAMachineASmallAllReduceIsOneStep) {
  const Planner planner(onOneSite({4}), settings());
  EXPECT_EQ(describe(planner.choose(Pattern::AllReduce, 4).plan), "AR0");
  EXPECT_EQ(describe(planner.choose(Pattern::AllReduce, 21 << 10).plan), "AR0");
  EXPECT_EQ(describe(planner.choose(Pattern::AllReduce, 22 << 10).plan), "RS0 AG0");
  EXPECT_EQ(describe(planner.choose(Pattern::AllReduce, kMiB).plan), "RS0 AG0");
  EXPECT_EQ(describe(planner.choose(Pattern::Reduce, 4).plan), "RS0 GA0");
  EXPECT_EQ(describe(planner.forecast(4).front().plan), "AR0");
  PlannerSettings onDevice = settings();
  onDevice.coreCopies = false;
  EXPECT_EQ(describe(Planner(onOneSite({4}), onDevice).choose(Pattern::AllReduce, 4).plan), "RS0 AG0");
}

TEST(PlanChoice, TakesFewerStepsWherePredictionsAreEqual) {
  PlannerSettings free = settings();
  free.rows = {kFree, {0, 0, 1e300, 1e300}};
  free.rows[0].bytesPerSecond = free.rows[0].summedBytesPerSecond = 1e300;
  EXPECT_EQ(describe(Planner(onOneSite({2, 2}), free).choose(0).plan), "RS0 AR1 AG0");
}

TEST(PlanChoice, OfThreeLevelsMayBeOneShotBetweenTheSites) {
  EXPECT_EQ(describe(Planner(onSites({{2, 2}, {2, 2}}), settings()).choose(4).plan), "RS0 RS1 AR2 AG1 AG0");
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
    ASSERT_EQ(forecasts.size(), 2);  // two-shot and one-shot
    EXPECT_EQ(forecasts[0].plan, planner.choose(bytes).plan);
    EXPECT_EQ(forecasts[0].sliceBytes, planner.choose(bytes).sliceBytes);
    EXPECT_LE(forecasts[0].seconds, forecasts[1].seconds);
    EXPECT_DOUBLE_EQ(forecasts[0].seconds, planner.predictSeconds(forecasts[0].plan, bytes, forecasts[0].sliceBytes));
  }
}

TEST(SliceSize, IsTheWholeCallForSmallCallsRoundedUpTo64Bytes) {
  const Planner planner(onOneSite({2, 2}), settings());
  EXPECT_EQ(planner.choose(4).sliceBytes, 64);
  EXPECT_EQ(planner.choose(64).sliceBytes, 64);
  EXPECT_EQ(planner.choose(68).sliceBytes, 128);
  EXPECT_EQ(planner.choose(kMiB).sliceBytes, kMiB);
}

TEST(SliceSize, IsNeverZero) { EXPECT_EQ(Planner(onOneSite({2}), settings()).choose(0).sliceBytes, 64); }

TEST(SliceSize, CutsALargeCallSoThatItsLevelsOverlap) {
  PlannerSettings slowMemory = settings();
  slowMemory.rows[0].bytesPerSecond = 1e8;
  const PlanChoice choice = Planner(onOneSite({2, 2}), slowMemory).choose(8 * kMiB);  // fits into one slice
  EXPECT_EQ(choice.sliceBytes, 2 * kMiB);
}

TEST(SliceSize, FillsLinksWithOtherSlicesWhereMachinesHaveOneRank) {
  const auto sliceBytes = [](const std::vector<int>& ranks, std::uint64_t bytes) {
    return Planner(onOneSite(ranks), settings(50 * kMiB)).choose(bytes).sliceBytes;
  };
  EXPECT_EQ(sliceBytes({1, 1, 1, 1}, kMiB / 4), kMiB / 4);
  EXPECT_EQ(sliceBytes({1, 1, 1, 1}, kMiB), kMiB / 4);  // 64 KiB to each
  EXPECT_EQ(sliceBytes({1, 1, 1, 1}, 4 * kMiB), kMiB / 4);
  EXPECT_GE(sliceBytes({1, 1, 1, 1}, 8 * kMiB), kMiB);
  EXPECT_EQ(sliceBytes({1, 1}, kMiB), kMiB);
  EXPECT_EQ(sliceBytes({1}, kMiB / 4), kMiB / 4);
  EXPECT_EQ(sliceBytes({2, 2, 2}, kMiB), kMiB);
}

TEST(SliceSize, FillsLinksWithSlicesInGroupsOfMachines) {
  const auto choice = [](int machines, std::uint64_t bytes) {
    return Planner(onOneSite(std::vector<int>(machines, 2)), settings(50 * kMiB)).choose(bytes);
  };
  const auto isInGroups = [](const PlanChoice& chosen) {
    return std::ranges::any_of(chosen.plan, [](const Step& step) { return step.level == Topology::kSiteLevel; });
  };
  EXPECT_TRUE(isInGroups(choice(8, 24 * kMiB)));
  EXPECT_EQ(choice(8, 24 * kMiB).sliceBytes, 3 * kMiB);
  EXPECT_EQ(choice(8, 96 * kMiB).sliceBytes, 3 * kMiB);
  EXPECT_EQ(choice(8, 8 * kMiB).sliceBytes, kMiB);
  EXPECT_EQ(choice(8, kMiB).sliceBytes, kMiB);
  EXPECT_EQ(choice(64, 96 * kMiB).sliceBytes, 6 * kMiB);  // parts of 96 KiB
  EXPECT_GT(choice(7, 24 * kMiB).sliceBytes, 3 * kMiB);
}

struct EqualSlices {
  std::uint64_t equal;
  std::uint64_t slices;
  bool operator==(const EqualSlices&) const = default;
};

// The number of slices of a call whose shards have one size on every machine.
EqualSlices equalSlices(const Topology& topology, std::uint64_t grainBytes, std::uint64_t bytes) {
  const Planner planner(topology, {50 * kMiB, 25 * kMiB, rowsOnDevice(builtInRows("tcp")), grainBytes});
  const PlanChoice choice = planner.choose(bytes);
  EqualSlices counts{0, 0};
  for (std::uint64_t from = 0; from < bytes; from += choice.sliceBytes, ++counts.slices) {
    bool equal = true;
    for (int machine = 0; machine < topology.machines(); ++machine) {
      const int rank = topology.ranksOf(machine).front();
      const std::uint64_t size = std::min(choice.sliceBytes, bytes - from);
      const Layout layout = planner.layoutOf(choice.plan, rank, size);
      for (const Range& shard : layout.at(0).rails.front().shards)
        equal = equal && shard.size() == layout.at(0).rails.front().shards.front().size();
    }
    counts.equal += equal ? 1 : 0;
  }
  return counts;
}

// A rank of a large world handles many messages for each slice, on the core that copies and sums.
TEST(SliceSize, IsTheWholeCallWhereTheCoreIsLongerBusyWithMessagesThanSlicesOverlap) {
  const auto slices = [](int machines, double bytesPerSecond) {
    std::vector<CostRow> rows = builtInRows("tcp");
    rows[1].bytesPerSecond = bytesPerSecond;
    const Planner planner(onOneSite(std::vector<int>(machines, 8)), {50 * kMiB, 25 * kMiB, rows});
    return ceilOf(25 * kMiB, planner.choose(25 * kMiB).sliceBytes);
  };
  EXPECT_EQ(slices(128, 1.5e9), 1);
  EXPECT_EQ(slices(1024, 1.5e9), 1);
  EXPECT_EQ(slices(2, 1.5e9), 4);    // few messages
  EXPECT_EQ(slices(128, 1.5e7), 4);  // a call waits for its link
}

TEST(SliceSize, LeavesSeveralInFlightWhereStagingDoesNotHoldTheCall) {
  const Planner planner(onOneSite(std::vector<int>(128, 8)), {50 * kMiB, 25 * kMiB, builtInRows("tcp")});
  EXPECT_LE(4 * planner.choose(400 * kMiB).sliceStagingBytes, 50 * kMiB);
}

TEST(SliceSize, OfADeviceGivesTheRanksOfAMachineEqualShardsButForACallsLastSlice) {
  const std::uint64_t embedding = 50257ULL * 768 * 4;
  const std::uint64_t matrix = 4096ULL * 4096 * 2;
  const std::uint64_t firstOfResNet = 8'196'000;
  const std::uint64_t otherOfResNet = 31'522'816;
  for (const std::vector<int>& ranks : {std::vector{8, 8}, std::vector{8, 8, 8, 8}, std::vector{4, 3, 2}}) {
    const Topology topology = onOneSite(ranks);
    const std::uint64_t grain = equalShardsGrainBytes(topology);
    for (const std::uint64_t bytes : {25 * kMiB, embedding, matrix, firstOfResNet, otherOfResNet}) {
      const EqualSlices counts = equalSlices(topology, grain, bytes);
      EXPECT_GE(counts.equal + 1, counts.slices) << topology.describe() << ", " << bytes << " bytes";
    }
  }
}

TEST(SliceSize, DoesNotCutWhereNothingOverlaps) {
  EXPECT_EQ(Planner(onOneSite({2}), settings()).choose(kMiB / 2).sliceBytes, kMiB / 2);
}

TEST(SliceSize, OnOneMachineIsTheLargestOfWhichTheCacheHoldsFour) {
  const PlanChoice choice = Planner(onOneSite({4}), settings(50 * kMiB)).choose(256 * kMiB);
  EXPECT_EQ(choice.stagingBytes, Planner::kCachedStagingBytes);
  EXPECT_EQ(choice.sliceBytes, Planner::kCachedStagingBytes / 4);
  EXPECT_EQ(Planner(onOneSite({4}), settings(kMiB)).choose(256 * kMiB).stagingBytes, kMiB);
}

TEST(SliceSize, OnSeveralMachinesMayUseAllOfStaging) {
  EXPECT_EQ(Planner(onOneSite({2, 2}), settings(50 * kMiB)).choose(256 * kMiB).stagingBytes, 50 * kMiB);
}

TEST(SliceSize, NeverExceedsTheSetting) {
  const Planner planner(onOneSite({2, 2}), settings(50 * kMiB, 100'000));
  const std::uint64_t bytes = planner.choose(400 * kMiB).sliceBytes;
  EXPECT_LE(bytes, 100'000);
  EXPECT_GE(bytes, 99'000);
}

std::uint64_t pages(std::uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

TEST(SliceSize, IsTheLargestOfWhichStagingHoldsFour) {
  const Topology topology = onOneSite({2, 2});
  const PlanChoice choice = Planner(topology, settings(8 * kMiB)).choose(4096 * kMiB);
  const std::uint64_t bytes = choice.sliceBytes;
  const auto fourOf = [&](std::uint64_t slice) {
    return 4 * pages(worstStagingBytes(choice.plan, loadsOf(topology), slice));
  };
  EXPECT_EQ(bytes % 64, 0);
  EXPECT_LE(fourOf(bytes), 8 * kMiB);
  EXPECT_GT(fourOf(bytes + bytes / 100), 8 * kMiB);  // a call's slices are nearly equal, so a little smaller
}

TEST(SliceSize, LeavesFewerInFlightBeforeItGivesUp) {
  const Planner planner(onOneSite({1, 1}), settings(120 << 10));
  EXPECT_GE(planner.choose(8 * kMiB).sliceBytes, 60 << 10);
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

const Plan kGrouped = hierarchicalPlan({0, 1, 2}, false);

Forecast forecastOf(const Planner& planner, const Plan& plan, std::uint64_t bytes) {
  const std::vector<Forecast> forecasts = planner.forecast(bytes);
  const auto found = std::ranges::find(forecasts, plan, &Forecast::plan);
  if (found == forecasts.end()) throw std::out_of_range(describe(plan));
  return *found;
}

// Plans without groups too, of however many machines.
constexpr GroupingFrom kBothWays{.only = GroupingFrom::kNever};

TEST(GroupedRails, CarryTheBytesOfTwoShotInFarFewerMessages) {
  const Planner planner(onOneSite(std::vector<int>(64, 1)), settings(1024 * kMiB));
  const std::uint64_t bytes = 64 * 64 * 100;
  const Forecast flat = forecastOf(planner, kTwoShot, bytes);
  const Forecast grouped = forecastOf(planner, kGrouped, bytes);
  EXPECT_EQ(flat.levels[1].messages, 2 * 63);
  EXPECT_EQ(grouped.levels[1].messages + grouped.levels[2].messages, 2 * (7 + 7));
  EXPECT_EQ(flat.levels[1].bytes, 2 * bytes / 64 * 63);
  const auto inGroups = static_cast<double>(grouped.levels[1].bytes + grouped.levels[2].bytes);
  EXPECT_NEAR(inGroups, static_cast<double>(flat.levels[1].bytes), 200);  // a grain's rounding between the two
}

TEST(GroupedRails, TakeTheTimeOfBothTheirLevelsAndTheRowOfTheRails) {
  PlannerSettings onlyNetwork = settings();
  onlyNetwork.rows = {kFree, {1, 0.01, 1e30, 1e30}};
  const Planner planner(onOneSite(std::vector<int>(64, 1)), onlyNetwork);
  EXPECT_NEAR(planner.predictSeconds(kGrouped, 6400, 6400), 4 * (1 + 0.07), 1e-9);
  EXPECT_NEAR(planner.predictSeconds(kGrouped, 3 * 6400, 6400), 3 * 4 * (1 + 0.07), 1e-9);
}

TEST(GroupedRails, AreNoCandidateOfFewMachines) {
  const Planner planner(onOneSite(std::vector<int>(7, 2)), settings());
  EXPECT_THROW(planner.predictSeconds(kGrouped, 6400, 6400), std::out_of_range);
  EXPECT_EQ(planner.levels(), (std::vector<int>{0, 1}));
}

TEST(GroupedRails, AreTheOnlyOnesOfMoreThan64Machines) {
  const auto levelsOf = [](const Plan& plan) {
    std::set<int> levels;
    for (const Step& step : plan) levels.insert(step.level);
    return levels;
  };
  for (const auto& [machines, levels] : std::vector<std::pair<int, std::set<int>>>{{64, {0, 1}}, {65, {0, 1, 2}}}) {
    const Planner planner(onOneSite(std::vector<int>(static_cast<std::size_t>(machines), 1)), settings());
    for (const Pattern pattern : {Pattern::Reduce, Pattern::Broadcast, Pattern::ReduceScatter, Pattern::AllGather,
                                  Pattern::Scatter, Pattern::Gather})
      EXPECT_EQ(levelsOf(planner.choose(pattern, 4096).plan), levels) << machines;
    EXPECT_EQ(levelsOf(planner.chooseAllToAll(64).plan), levels) << machines;
    EXPECT_EQ(levelsOf(planner.chooseSparse(4096, 64).plan), levels) << machines;
    const auto isFlat = [](const Forecast& one) { return one.plan.back().level == 0 && one.levels[2].messages == 0; };
    EXPECT_EQ(std::ranges::any_of(planner.forecast(kMiB), isFlat), machines == 64);
  }
}

// The ancestor's plan, one shard for every machine, loses its bandwidth to messages.
TEST(GroupedRails, KeepTheBandwidthUpTo1024Machines) {
  PlannerSettings fast = settings();
  fast.rows = {{15e-6, 2e-6, 5e9, 8e9}, {30e-6, 20e-6, 12.5e9, 8e9}};
  const std::uint64_t bytes = 400 * kMiB;
  const auto seconds = [&](int machines, bool best) {
    const Planner planner(onOneSite(std::vector<int>(machines, 8), kBothWays), fast);
    return best ? planner.forecast(bytes).front().seconds : forecastOf(planner, kTwoShot, bytes).seconds;
  };
  EXPECT_GT(seconds(1024, false), 5 * seconds(8, false));
  EXPECT_LT(seconds(1024, true), 1.5 * seconds(8, true));
}

}  // namespace
}  // namespace fairring
