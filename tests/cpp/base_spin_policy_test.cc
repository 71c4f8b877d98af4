#include "base/spin_policy.h"

#include <gtest/gtest.h>

namespace fairring {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr SpinPolicy::Duration kMost = microseconds(50);
constexpr SpinPolicy::Duration kNone = SpinPolicy::Duration::zero();

void miss(SpinPolicy& policy, int times) {
  for (int i = 0; i < times; ++i) {
    EXPECT_EQ(policy.next(), kMost);
    policy.ended(microseconds(80), true);
  }
}

TEST(SpinPolicy, SpinningThatPaysGoesOn) {
  SpinPolicy policy(kMost);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(policy.next(), kMost);
    policy.ended(microseconds(20), false);
  }
}

TEST(SpinPolicy, SpinningInVainIsLeftOff) {
  SpinPolicy policy(kMost);
  miss(policy, SpinPolicy::kMisses);
  EXPECT_EQ(policy.next(), kNone);
}

TEST(SpinPolicy, WhatIsFoundLateWhileSpinningIsInVain) {
  SpinPolicy policy(kMost);
  for (int i = 0; i < SpinPolicy::kMisses; ++i) {
    EXPECT_EQ(policy.next(), kMost);
    policy.ended(milliseconds(3), false);
  }
  EXPECT_EQ(policy.next(), kNone);
}

TEST(SpinPolicy, LongWaitsSayNothing) {
  SpinPolicy policy(kMost);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(policy.next(), kMost);
    policy.ended(milliseconds(20), true);
  }
}

TEST(SpinPolicy, ItIsTriedAgainAndOneSuccessSuffices) {
  SpinPolicy policy(kMost);
  miss(policy, SpinPolicy::kMisses);
  int waits = 1;
  while (policy.next() == kNone) {
    policy.ended(microseconds(20), true);
    ASSERT_LE(++waits, SpinPolicy::kTryEvery);
  }
  EXPECT_EQ(waits, SpinPolicy::kTryEvery);
  policy.ended(microseconds(20), false);
  EXPECT_EQ(policy.next(), kMost);
}

}  // namespace
}  // namespace fairring
