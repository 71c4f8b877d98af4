#include "exchange/store_choice.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <utility>

namespace fairring {
namespace {

constexpr std::uint64_t kBytes = 256 << 10;

// The ranks of a machine, whose slices take the first so many ns for each KiB, and the second three times as many.
class Machine {
 public:
  void take(int slices, int cached, int streamed) {
    for (int i = 0; i < slices; ++i, ++next_) {
      last_ = ranks_[0].streams(slice(), kBytes);
      EXPECT_EQ(ranks_[1].streams(slice(), kBytes), last_);
      streamed_ += last_ ? 1 : 0;
      const std::chrono::nanoseconds time((last_ ? streamed : cached) * 256);
      ranks_[0].took(last_, kBytes, time);
      ranks_[1].took(last_, kBytes, 3 * time);
      ranks_[0].heard(1, ranks_[1].own());
      ranks_[1].heard(0, ranks_[0].own());
    }
  }
  int streamed() { return std::exchange(streamed_, 0); }  // slices, since the last time
  StoreChoice& rank(std::size_t number) { return ranks_[number]; }
  SliceId slice() const { return {SliceQueue::HostBulk, next_}; }

 private:
  std::array<StoreChoice, 2> ranks_;
  std::uint64_t next_ = 0;
  int streamed_ = 0;
  bool last_ = false;
};

TEST(StoreChoice, TriesTheOtherWayInOneSliceOf61) {
  Machine near;
  near.take(610, 100, 160);
  EXPECT_EQ(near.streamed(), 10);
  Machine far;
  far.take(61, 400, 160);
  EXPECT_EQ(far.streamed(), 1);
  far.take(610, 400, 160);
  EXPECT_EQ(far.streamed(), 600);
}

TEST(StoreChoice, FollowsRanksThatMove) {
  Machine machine;
  machine.take(610, 100, 160);
  machine.streamed();
  machine.take(61, 400, 170);
  EXPECT_GT(machine.streamed(), 20) << "what is taken now becomes slower: seen in every slice";
  machine.take(128 * 61, 100, 160);
  machine.streamed();
  machine.take(610, 100, 160);
  EXPECT_EQ(machine.streamed(), 10) << "the other way becomes faster: seen in one slice of 61";
}

TEST(StoreChoice, SlicesOfTwoKindsInTurnAreTriedAlike) {
  Machine near;
  for (int i = 0; i < 2000; ++i) {
    near.take(1, 100, 125);
    near.take(1, 50, 62);
  }
  near.streamed();
  for (int i = 0; i < 305; ++i) {
    near.take(1, 100, 125);
    near.take(1, 50, 62);
  }
  EXPECT_EQ(near.streamed(), 10);
}

TEST(StoreChoice, AFirstSlowTrialIsForgottenSoon) {
  Machine far;
  far.take(60, 400, 160);
  far.take(1, 400, 8000);
  far.take(12 * 61, 400, 160);
  far.streamed();
  far.take(61, 400, 160);
  EXPECT_EQ(far.streamed(), 60);
}

TEST(StoreChoice, StaysWithCachesForANoisyGain) {
  Machine machine;
  machine.take(610, 100, 97);
  EXPECT_EQ(machine.streamed(), 10);
}

TEST(StoreChoice, ASlowSliceCountsOnce) {
  Machine machine;
  machine.take(610, 100, 160);
  const float before = machine.rank(0).own().cached;
  machine.rank(0).took(false, kBytes, std::chrono::seconds(1));
  EXPECT_LT(machine.rank(0).own().cached, before * 1.1F);
}

TEST(StoreChoice, SmallSlicesGoThroughCaches) {
  Machine machine;
  machine.take(610, 400, 160);
  EXPECT_TRUE(machine.rank(0).streams(machine.slice(), StoreChoice::kLeastBytes));
  EXPECT_FALSE(machine.rank(0).streams(machine.slice(), StoreChoice::kLeastBytes - 1));
}

TEST(StoreChoice, SumsOverTheRanksAndWaitsUntilAllAreKnown) {
  StoreChoice rank;
  rank.took(false, kBytes, std::chrono::nanoseconds(256 * 100));
  rank.took(true, kBytes, std::chrono::nanoseconds(256 * 160));
  EXPECT_FALSE(rank.streams({SliceQueue::HostBulk, 0}, kBytes));
  rank.heard(1, {.cached = 400, .streamed = 0});
  EXPECT_FALSE(rank.streams({SliceQueue::HostBulk, 0}, kBytes));
  rank.heard(1, {.cached = 400, .streamed = 160});
  EXPECT_TRUE(rank.streams({SliceQueue::HostBulk, 0}, kBytes));
}

}  // namespace
}  // namespace fairring
