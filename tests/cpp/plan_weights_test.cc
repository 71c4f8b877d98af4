// Weights by their bounds: what the machines carry is reckoned from the weights, link by link.
#include "plan/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "plan/planner.h"
#include "plan_machines.h"

namespace fairring {
namespace {

// Every machine sends to each other one alike.
LinkRates ratesOf(const std::vector<std::uint64_t>& machines) {
  LinkRates rates(machines.size(), std::vector<std::uint64_t>(machines.size()));
  for (std::size_t from = 0; from < machines.size(); ++from) {
    for (std::size_t to = 0; to < machines.size(); ++to) {
      if (from != to) rates[from][to] = std::min(machines[from], machines[to]);
    }
  }
  return rates;
}

// Seconds of N = 1 on links of so many N/s: each machine's share is sent in the gathering, all else in the scattering.
double secondsOf(const std::vector<double>& links, const Weights& weights) {
  double longest = 0;
  const auto machines = static_cast<double>(links.size());
  for (std::size_t i = 0; i < links.size(); ++i) {
    const double share = weights.empty() ? 1 / machines : static_cast<double>(weights[i]) / kWholeWeight;
    longest = std::max(longest, ((1 - share) + (machines - 1) * share) / links[i]);
  }
  return longest;
}

TEST(Weights, OfEqualLinksAreEqualShards) {
  EXPECT_TRUE(balanced(std::vector<std::uint64_t>{64, 64, 64, 64}).empty());
  EXPECT_TRUE(balanced(std::vector<std::uint64_t>{64, 32}).empty()) << "of two machines each carries all";
}

TEST(Weights, OfASiteAreThoseOfItsMachinesInEqualParts) {
  EXPECT_EQ(partsOfMachines(onOneSite({2, 1, 1}), {128, 0, 128}), (std::vector<std::uint32_t>{128, 0, 128}));
  const std::uint32_t whole = 1 << 20;
  EXPECT_EQ(partsOfMachines(onSites({{1, 1}, {4}, {2, 1, 1, 1}}), {128, 0, 128}),
            (std::vector<std::uint32_t>{64 * whole, 64 * whole, 0, 32 * whole, 32 * whole, 32 * whole, 32 * whole}));
  EXPECT_TRUE(partsOfMachines(onSites({{1}, {1}, {1}}), {}).empty());
}

TEST(Weights, LetAHalvedLinkOwnNothing) {
  EXPECT_EQ(balanced(std::vector<std::uint64_t>{64, 32, 64, 64})[1], 0);
  EXPECT_NEAR(secondsOf({1, 0.5, 1, 1}, balanced(std::vector<std::uint64_t>{64, 32, 64, 64})), 2.0, 0.01);
  EXPECT_NEAR(
      secondsOf({1, 1, 1, 1, 1, 1, 1, 0.5}, balanced(std::vector<std::uint64_t>{64, 64, 64, 64, 64, 64, 64, 32})), 2.0,
      0.01);
}

TEST(Weights, AreWithinRoundingOfTheBestOfAllThatWereTried) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    const std::size_t machines = 3 + random() % 6;
    std::vector<std::uint64_t> relative(machines, 64);
    for (std::uint64_t& rate : relative) rate = random() % 2 == 0 ? 64 : 8 + random() % 57;
    std::vector<double> links;
    for (const std::uint64_t rate : relative) links.push_back(static_cast<double>(rate) / 64);
    const Weights weights = balanced(relative);
    const double time = secondsOf(links, weights);
    if (!weights.empty()) {
      ASSERT_EQ(std::reduce(weights.begin(), weights.end()), kWholeWeight);
    }
    for (int other = 0; other < 100; ++other) {
      Weights tried(machines, 0);
      for (std::uint32_t unit = 0; unit < kWholeWeight; ++unit) ++tried[random() % (1 + random() % machines)];
      ASSERT_LE(time, secondsOf(links, tried) * 1.1);
    }
    ASSERT_LE(time, secondsOf(links, {}) * 1.02);
  }
}

TEST(Weights, FollowTheRatesOfMostMachines) {
  EXPECT_EQ(relativeRates(ratesOf({100, 100, 100, 900})), (std::vector<std::uint64_t>{64, 64, 64, 64}));
  const std::vector<std::uint64_t> oneSlow = relativeRates(ratesOf({1000, 500, 1000, 1000}));
  EXPECT_EQ(oneSlow[1], 38);  // 3 * 500, where the others have 1000 + 1000 + 500
  EXPECT_EQ(oneSlow[0], 64);
}

TEST(Weights, AreUnknownWhereAMachineIs) { EXPECT_TRUE(relativeRates(ratesOf({100, 100, 0, 100})).empty()); }

TEST(WeightPolicy, KeepsEqualSharesWhereRatesVaryALittle) {
  std::mt19937 random(5);
  WeightPolicy policy;
  for (int period = 0; period < 1000; ++period) {
    std::vector<std::uint64_t> rates;
    for (int machine = 0; machine < 4; ++machine) rates.push_back(90 + random() % 20);
    ASSERT_TRUE(policy.next(ratesOf(rates)).empty());
  }
}

TEST(WeightPolicy, ChangesOnceALinkHasBeenSlowTwiceAndReturnsLikewise) {
  WeightPolicy policy;
  const LinkRates slow = ratesOf({100, 50, 100, 100});
  const LinkRates even = ratesOf({100, 100, 100, 100});
  EXPECT_TRUE(policy.next(slow).empty());
  EXPECT_TRUE(policy.next(even).empty());
  EXPECT_TRUE(policy.next(slow).empty());
  EXPECT_EQ(policy.next(slow)[1], 0);
  EXPECT_EQ(policy.next(even)[1], 0);
  EXPECT_TRUE(policy.next(even).empty());
}

TEST(WeightPolicy, KeepsItsWeightsWhereNothingIsKnown) {
  WeightPolicy policy;
  policy.next(ratesOf({100, 50, 100, 100}));
  policy.next(ratesOf({100, 50, 100, 100}));
  EXPECT_EQ(policy.next(ratesOf({0, 0, 0, 0}))[1], 0);
}

// A policy that has taken weights for a halved link, when calls with equal shards went at 100.
WeightPolicy takenForAHalvedLink() {
  WeightPolicy policy;
  policy.next(ratesOf({100, 50, 100, 100}), 100);
  policy.next(ratesOf({100, 50, 100, 100}), 99);
  return policy;
}

TEST(WeightPolicy, GivesUpWeightsWithWhichCallsAreNoFasterThanWithEqualShards) {
  WeightPolicy policy = takenForAHalvedLink();
  const LinkRates slow = ratesOf({100, 50, 100, 100});
  EXPECT_FALSE(policy.next(slow, 102).empty());
  EXPECT_FALSE(policy.next(slow, 0).empty()) << "nothing is known";
  EXPECT_TRUE(policy.next(slow, 101).empty());
}

TEST(WeightPolicy, KeepsWeightsWithWhichCallsAreFaster) {
  WeightPolicy policy = takenForAHalvedLink();
  for (int times = 0; times < 20; ++times)
    ASSERT_FALSE(policy.next(ratesOf({100, 50, 100, 100}), times % 2 == 0 ? 90 : 104).empty());
}

// How many times it keeps equal shards though rates promise a gain, from when it has given weights up.
int timesUntilItTriesAgain(WeightPolicy& policy, const LinkRates& rates) {
  while (!policy.weights().empty()) policy.next(rates, 90);
  int times = 0;
  while (policy.next(rates, 100).empty()) ++times;
  return times;
}

TEST(WeightPolicy, WaitsLongerEachTimeThatWeightsGainNothing) {
  WeightPolicy policy = takenForAHalvedLink();
  const LinkRates slow = ratesOf({100, 50, 100, 100});
  EXPECT_EQ(timesUntilItTriesAgain(policy, slow), 8);
  EXPECT_EQ(timesUntilItTriesAgain(policy, slow), 16);
  policy.next(slow, 150);
  EXPECT_EQ(timesUntilItTriesAgain(policy, slow), 8) << "after weights that were worth it";
}

TEST(WeightPolicy, TriesAgainAtOnceWhereRatesPromiseMoreThanTheyDid) {
  WeightPolicy policy;
  for (int times = 0; times < 2; ++times) policy.next(ratesOf({100, 65, 100, 100}), 100);
  ASSERT_FALSE(policy.weights().empty());
  EXPECT_EQ(timesUntilItTriesAgain(policy, ratesOf({100, 25, 100, 100})), 1);
}

TEST(WeightPolicy, ReturnsToEqualShardsWhenCallsBecomeFaster) {
  WeightPolicy policy = takenForAHalvedLink();
  const LinkRates slow = ratesOf({100, 50, 100, 100});
  for (const std::uint64_t speed : {110, 135, 130, 128, 145, 130, 146}) ASSERT_FALSE(policy.next(slow, speed).empty());
  EXPECT_TRUE(policy.next(slow, 147).empty());
}

TEST(WeightPolicy, TakesMoreToReturnWhereItReturnedInVain) {
  WeightPolicy policy = takenForAHalvedLink();
  const LinkRates slow = ratesOf({100, 50, 100, 100});
  for (const std::uint64_t speed : {130, 130, 142, 142}) policy.next(slow, speed);
  ASSERT_TRUE(policy.weights().empty());
  while (policy.next(slow, 100).empty()) {
  }
  for (const std::uint64_t speed : {130, 130, 142, 142, 142}) ASSERT_FALSE(policy.next(slow, speed).empty());
}

TEST(WeightedPlan, FitsTheMemoryThatHoldsFourOfItsSlices) {
  const Planner planner(onOneSite({1, 1, 1, 1}),
                        {50 << 20, 25 << 20, std::vector<CostRow>(3, {1e-5, 1e-5, 1e8, 1e10})});
  const std::uint64_t bytes = 25 << 20;
  const PlanChoice even = planner.choose(Pattern::AllReduce, bytes);
  const auto weighted = planner.weighted(even, bytes, {0, 128, 128, 0});
  ASSERT_TRUE(weighted);
  EXPECT_LE(4 * weighted->sliceStagingBytes, weighted->stagingBytes);
  EXPECT_LT(weighted->stagingBytes, 50 << 20) << "not all slices are in flight at once";
  EXPECT_LT(weighted->sliceElements, even.sliceElements) << "whose owners need less for what the others send";
}

}  // namespace
}  // namespace fairring
