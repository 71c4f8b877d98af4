// The timers of calls under way. The loop is stepped by hand.
#include "group/deadlines.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fairring {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{60'000};

struct Rig {
  Loop loop;
  std::vector<std::string> expired;
  Deadlines deadlines{loop, [this](const TimedCall& call) { expired.push_back(call.text.str()); }};

  void begin(std::vector<TimedCall> calls, const std::vector<std::uint64_t>& ended = {}) {
    loop.post([this, calls = std::move(calls), ended] {
      for (const TimedCall& call : calls) deadlines.begin(call.number, call);
      for (const std::uint64_t call : ended) deadlines.end(call);
    });
  }
  void run(std::size_t untilExpired) {
    while (expired.size() < untilExpired) loop.runOnce(kLong);
    loop.post([this] { deadlines.close(); });
    loop.runOnce(milliseconds(0));
  }
};

TEST(Deadlines, EachCallExpiresInItsOwnTime) {
  Rig rig;
  rig.begin({{1, "long", kLong}, {2, "later", milliseconds(40)}, {3, "sooner", milliseconds(20)}});
  rig.run(2);
  EXPECT_EQ(rig.expired, (std::vector<std::string>{"sooner", "later"}));
}

TEST(Deadlines, WhatHasEndedOrHasNoTimeoutDoesNotExpire) {
  Rig rig;
  rig.begin({{1, "ended", milliseconds(10)}, {2, "for ever", milliseconds(0)}, {3, "late", milliseconds(30)}}, {1});
  rig.run(1);
  EXPECT_EQ(rig.expired, std::vector<std::string>{"late"});
}

TEST(Deadlines, TheFirstThatExpiresMayEndAllOthers) {
  Loop loop;
  int expired = 0;
  std::function<void()> endAll;
  Deadlines deadlines(loop, [&](const TimedCall&) {
    ++expired;
    endAll();
  });
  endAll = [&] {
    for (const std::uint64_t call : {1, 2, 3}) deadlines.end(call);
  };
  bool later = false;
  loop.post([&] {
    for (const std::uint64_t call : {1, 2, 3}) deadlines.begin(call, {call, "call", milliseconds(5)});
    loop.at(Loop::Clock::now() + milliseconds(30), [&] { later = true; });
  });
  while (!later) loop.runOnce(kLong);
  EXPECT_EQ(expired, 1);
}

}  // namespace
}  // namespace fairring
