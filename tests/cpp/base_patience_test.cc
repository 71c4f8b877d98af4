#include "base/patience.h"

#include <gtest/gtest.h>

namespace fairring {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Patience::Duration kMost = microseconds(50);
constexpr Patience::Duration kNone = Patience::Duration::zero();

void miss(Patience& patience, int times) {
  for (int i = 0; i < times; ++i) {
    EXPECT_EQ(patience.next(), kMost);
    patience.ended(microseconds(80), true);
  }
}

TEST(Patience, LookingThatPaysGoesOn) {
  Patience patience(kMost);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(patience.next(), kMost);
    patience.ended(microseconds(20), false);
  }
}

TEST(Patience, LookingInVainIsLeftOff) {
  Patience patience(kMost);
  miss(patience, Patience::kMisses);
  EXPECT_EQ(patience.next(), kNone);
}

TEST(Patience, WhatIsFoundLateWhileLookingIsInVain) {
  Patience patience(kMost);
  for (int i = 0; i < Patience::kMisses; ++i) {
    EXPECT_EQ(patience.next(), kMost);
    patience.ended(milliseconds(3), false);
  }
  EXPECT_EQ(patience.next(), kNone);
}

TEST(Patience, LongWaitsSayNothing) {
  Patience patience(kMost);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(patience.next(), kMost);
    patience.ended(milliseconds(20), true);
  }
}

TEST(Patience, ItIsTriedAgainAndOneSuccessSuffices) {
  Patience patience(kMost);
  miss(patience, Patience::kMisses);
  int waits = 1;
  while (patience.next() == kNone) {
    patience.ended(microseconds(20), true);
    ASSERT_LE(++waits, Patience::kTryEvery);
  }
  EXPECT_EQ(waits, Patience::kTryEvery);
  patience.ended(microseconds(20), false);
  EXPECT_EQ(patience.next(), kMost);
}

}  // namespace
}  // namespace fairring
