#include "engine/shard_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace fairring {
namespace {

Topology machinesOf(const std::vector<int>& ranks) {
  std::vector<Place> places;
  for (std::size_t machine = 0; machine < ranks.size(); ++machine) {
    for (int rank = 0; rank < ranks[machine]; ++rank) places.push_back({std::to_string(machine), ""});
  }
  return Topology(places);
}

TEST(ShardWeights, AreOfThreeMachinesOfOneSiteOrOfThreeSites) {
  EXPECT_FALSE(ShardWeights::applyTo(machinesOf({4, 4})));
  EXPECT_TRUE(ShardWeights::applyTo(machinesOf({1, 1, 1})));
  EXPECT_FALSE(ShardWeights::applyTo(machinesOf(std::vector<int>(65, 1))));
  EXPECT_FALSE(ShardWeights::applyTo(Topology({{"a", "x"}, {"b", "x"}, {"c", "y"}})));
  EXPECT_TRUE(ShardWeights::applyTo(Topology({{"a", "x"}, {"b", "y"}, {"c", "z"}})));
}

TEST(ShardWeights, AreDueAgainAfterSoManyBytes) {
  const Topology topology = machinesOf({1, 1, 1});
  ShardWeights weights(topology, 0, {.rates = nullptr, .bytesBetween = 100});
  EXPECT_FALSE(weights.isDue(99));
  EXPECT_TRUE(weights.isDue(1));
  EXPECT_FALSE(weights.isDue(60));
  EXPECT_TRUE(weights.isDue(60));
}

TEST(ShardWeights, AddUpWhatAMachinesRanksHear) {
  const Topology topology = machinesOf({2, 1, 1});
  ShardWeights weights(topology, 2, {.rates = [] { return RatesByPeer{{0, 10}, {1, 20}, {3, 5}}; }});
  EXPECT_EQ(weights.begin()->rates(), (LinkRates{{0, 30, 0}, {0, 0, 0}, {0, 5, 0}}));
}

TEST(ShardWeights, AddUpWhatASitesMachinesHearFromOtherSites) {
  const Topology topology({{"a", "x"}, {"b", "x"}, {"c", "y"}, {"d", "y"}, {"e", "z"}});
  ShardWeights weights(topology, 3, {.rates = [] { return RatesByPeer{{0, 10}, {1, 20}, {2, 40}, {4, 5}}; }});
  EXPECT_EQ(weights.begin()->rates(), (LinkRates{{0, 30, 0}, {0, 0, 0}, {0, 5, 0}}));
}

// Rank 0 alone tells rates, as if those of all had been added up already.
class Agreement : public ::testing::Test {
 protected:
  static void put(ShardWeights::Exchange& exchange, const std::vector<std::int64_t>& rates) {
    std::ranges::copy(rates, static_cast<std::int64_t*>(exchange.operands().front().data));
  }

  // A call of a second with equal shards, or with those of the latest weights, then an exchange of these rates.
  std::uint64_t speedOfCallOf(std::uint64_t bytes, const std::vector<std::int64_t>& rates, std::uint64_t weighting) {
    weights_.callBegins(now_);
    weights_.callEnds(bytes, weighting, now_ += 1'000'000'000);
    const auto exchange = weights_.begin();
    put(*exchange, rates);
    weights_.end(*exchange);
    weights_.advance();
    return exchange->speed();
  }

  const std::vector<std::int64_t> even_{0, 9, 9, 9, 0, 9, 9, 9, 0};
  const std::vector<std::int64_t> lastIsSlow_{0, 9, 2, 9, 0, 2, 2, 2, 0};
  const Topology topology_ = machinesOf({1, 1, 1});
  ShardWeights weights_{topology_, 0, {.rates = [] { return RatesByPeer(); }}};
  std::int64_t now_ = 0;
};

TEST_F(Agreement, TakesExchangesOneByOneInOrderWhicheverIsOverFirst) {
  std::vector<std::shared_ptr<ShardWeights::Exchange>> exchanges;
  for (const auto* rates : {&lastIsSlow_, &lastIsSlow_, &even_}) put(*exchanges.emplace_back(weights_.begin()), *rates);
  weights_.end(*exchanges[2]);
  weights_.end(*exchanges[1]);
  EXPECT_FALSE(weights_.advance());
  EXPECT_EQ(weights_.taken(), 0);
  weights_.end(*exchanges[0]);
  EXPECT_TRUE(weights_.advance());
  EXPECT_TRUE(weights_.weights().empty()) << "of calls between the first exchange and the second";
  EXPECT_TRUE(weights_.advance());
  EXPECT_EQ(weights_.weights(), (Weights{128, 128, 0}));
  EXPECT_TRUE(weights_.advance());
  EXPECT_FALSE(weights_.advance());
  EXPECT_EQ(weights_.taken(), 3);
}

TEST_F(Agreement, NumbersWeightsAnewWithEachChange) {
  std::vector<std::uint64_t> numbers;
  for (const auto* rates :
       {&even_, &lastIsSlow_, &lastIsSlow_, &lastIsSlow_, &even_, &even_, &lastIsSlow_, &lastIsSlow_}) {
    const auto exchange = weights_.begin();
    put(*exchange, *rates);
    weights_.end(*exchange);
    weights_.advance();
    numbers.push_back(weights_.number());
  }
  EXPECT_EQ(numbers, (std::vector<std::uint64_t>{0, 0, 1, 1, 1, 0, 0, 2}));
}

TEST_F(Agreement, TellsTheSpeedOfCallsWithThePresentWeightsAlone) {
  EXPECT_EQ(speedOfCallOf(100, lastIsSlow_, 0), 100);
  EXPECT_EQ(speedOfCallOf(90, lastIsSlow_, 0), 90);
  ASSERT_EQ(weights_.number(), 1);
  EXPECT_EQ(speedOfCallOf(95, lastIsSlow_, 0), 0) << "of a call that was cut before the weights were known";
  EXPECT_EQ(speedOfCallOf(150, lastIsSlow_, 1), 150);
}

}  // namespace
}  // namespace fairring
