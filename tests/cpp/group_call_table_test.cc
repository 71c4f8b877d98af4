// The calls of a rank: what its peers are told of them, how long they may last, and which are complete. The loop is
// stepped by hand.
#include "group/call_table.h"

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "base/fields.h"

namespace fairring {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{60'000};

struct Rig {
  Loop loop;
  std::vector<std::string> expired;
  CallTable calls{loop, [this](const TimedCall& call) { expired.push_back(call.text.str()); }, 2};

  void onLoop(std::function<void()> task) {
    loop.post(std::move(task));
    loop.runOnce(milliseconds(0));
  }
  void begin(
      const std::string& text, milliseconds timeout = milliseconds(0), CallTable::Done done = [](const Error&) {}) {
    calls.begin(calls.enter({text}).number, std::move(done), timeout);
  }
  void run(std::size_t untilExpired) {
    while (expired.size() < untilExpired) loop.runOnce(kLong);
    onLoop([this] { calls.close(); });
  }
};

void record(CallTable& calls, int count, const std::string& text = "all_reduce SUM of 10 Float32") {
  for (int i = 0; i < count; ++i) calls.enter({text});
}

TEST(CallTable, EqualCallsHaveEqualHashes) {
  Loop loop;
  CallTable one(loop);
  CallTable other(loop);
  EXPECT_EQ(one.last().number, 0U);
  record(one, 100);
  record(other, 100);
  EXPECT_EQ(one.last().number, 100U);
  EXPECT_EQ(one.last().hash, other.last().hash);
  EXPECT_FALSE(one.differs(100, other.last().hash));
  EXPECT_FALSE(one.differenceTo(other.told()));
}

TEST(CallTable, TheHashCoversAllCallsAndTheirOrder) {
  Loop loop;
  CallTable one(loop);
  CallTable other(loop);
  one.enter({"a"});
  one.enter({"b"});
  other.enter({"b"});
  other.enter({"a"});
  EXPECT_TRUE(one.differs(2, other.last().hash));
  const auto difference = one.differenceTo(other.told());
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->number, 1U);
  EXPECT_EQ(difference->here, "a");
  EXPECT_EQ(difference->there, "b");
  EXPECT_TRUE(difference->first);
}

TEST(CallTable, TheDigestTellsApartWhatTheTextDoesNot) {
  Loop loop;
  CallTable one(loop);
  CallTable other(loop);
  one.enter({"all_reduce of 3 tensors", 1});
  other.enter({"all_reduce of 3 tensors", 2});
  EXPECT_TRUE(one.differs(1, other.last().hash));
}

TEST(CallTable, CallsThatAreNotMadeOrNotKeptDoNotDiffer) {
  Loop loop;
  CallTable calls(loop);
  EXPECT_FALSE(calls.differs(1, 7));
  record(calls, 100);
  EXPECT_FALSE(calls.differs(101, 7));
  EXPECT_FALSE(calls.differs(100 - CallTable::kTold, 7));
  EXPECT_TRUE(calls.differs(101 - CallTable::kTold, 7));
}

TEST(CallTable, ADifferenceBeforeWhatIsKeptIsNotCalledTheFirst) {
  Loop loop;
  CallTable one(loop);
  CallTable other(loop);
  one.enter({"early"});
  other.enter({"other"});
  record(one, 100);
  record(other, 100);
  const auto difference = one.differenceTo(other.told());
  ASSERT_TRUE(difference);
  EXPECT_FALSE(difference->first);
}

TEST(CallTable, TheFirstDifferenceIsFoundThoughOneIsAhead) {
  Loop loop;
  CallTable one(loop);
  CallTable other(loop);
  record(one, 70);
  record(other, 70);
  one.enter({"all_reduce SUM of 11 Float32"});
  record(other, 30);
  const auto difference = one.differenceTo(other.told());
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->number, 71U);
  EXPECT_TRUE(difference->first);
}

TEST(CallTable, LongAndManyLinedTextsFitIntoAMessage) {
  Loop loop;
  CallTable calls(loop);
  record(calls, 1000, std::string(5000, 'x') + "\nsecond line");
  EXPECT_LT(toText(calls.told()).size(), 32U << 10);
  CallTable other(loop);
  record(other, 1000, std::string(5000, 'x') + "\nanother line");
  ASSERT_TRUE(calls.differenceTo(other.told())) << "what is not shown counts";
}

TEST(CallTable, APeerThatHasKeptNothingOrNonsenseIsNoDifference) {
  Loop loop;
  CallTable calls(loop);
  record(calls, 5);
  EXPECT_FALSE(calls.differenceTo({}));
  EXPECT_FALSE(calls.differenceTo({{0, 1, "a"}, {6, 1, "a"}}));
}

TEST(CallTable, EachCallExpiresInItsOwnTime) {
  Rig rig;
  rig.onLoop([&] {
    rig.begin("long", kLong);
    rig.begin("later", milliseconds(40));
    rig.begin("sooner", milliseconds(20));
  });
  rig.run(2);
  EXPECT_EQ(rig.expired, (std::vector<std::string>{"sooner", "later"}));
}

TEST(CallTable, ACallThatHasEndedOrHasNoTimeoutDoesNotExpire) {
  Rig rig;
  rig.onLoop([&] {
    rig.begin("ended", milliseconds(10));
    rig.begin("for ever");
    rig.begin("late", milliseconds(30));
    rig.calls.end(1, {});
  });
  rig.run(1);
  EXPECT_EQ(rig.expired, std::vector<std::string>{"late"});
}

TEST(CallTable, TheFirstCallThatExpiresMayEndAllOthers) {
  Loop loop;
  int expired = 0;
  std::function<void()> endAll;
  CallTable calls(loop, [&](const TimedCall&) {
    ++expired;
    endAll();
  });
  endAll = [&] {
    for (const std::uint64_t call : {1, 2, 3}) calls.end(call, makeError(ErrorKind::Timeout, "late"));
  };
  bool later = false;
  loop.post([&] {
    for (int i = 0; i < 3; ++i) calls.begin(calls.enter({"call"}).number, [](const Error&) {}, milliseconds(5));
    loop.at(Loop::Clock::now() + milliseconds(30), [&] { later = true; });
  });
  while (!later) loop.runOnce(kLong);
  EXPECT_EQ(expired, 1);
}

TEST(CallTable, ACallEndsOnce) {
  Rig rig;
  int told = 0;
  rig.onLoop([&] {
    rig.begin("call", kLong, [&](const Error&) { ++told; });
    EXPECT_TRUE(rig.calls.underWay(1));
    EXPECT_EQ(rig.calls.oldestUnderWay()->text, "call");
    rig.calls.end(1, {})({});
    EXPECT_FALSE(rig.calls.end(1, {})) << "it is over";
    EXPECT_FALSE(rig.calls.end(2, {})) << "it was not made";
    EXPECT_FALSE(rig.calls.oldestUnderWay());
    rig.calls.close();
  });
  EXPECT_EQ(told, 1);
}

TEST(CallTable, CallsAreCompleteUpToTheFirstThatIsNot) {
  Rig rig;
  rig.onLoop([&] {
    for (int i = 0; i < 5; ++i) rig.begin("call");
    rig.calls.end(2, {});
    EXPECT_EQ(rig.calls.settle(), 0U);
  });
  Rig other;
  other.onLoop([&] {
    for (int i = 0; i < 5; ++i) other.begin("call");
    other.calls.end(3, makeError(ErrorKind::Refused, "its tensor shares memory"));
    other.calls.end(2, {});
    other.calls.end(1, {});
    other.calls.end(4, makeError(ErrorKind::PeerDied, "rank 1 died"));
    other.calls.end(5, {});
    EXPECT_EQ(other.calls.settle(), 3U) << "all ranks know of a call that was refused";
  });
}

TEST(CallTable, ACallThatEndsAfterTheSettlementDoesNotCount) {
  Rig rig;
  rig.onLoop([&] {
    rig.begin("before");
    EXPECT_EQ(rig.calls.settle(), 0U);
    rig.begin("after");
    EXPECT_TRUE(rig.calls.underWay(1)->isSettled);
    EXPECT_FALSE(rig.calls.underWay(2)->isSettled);
    rig.calls.end(1, {});
    rig.calls.end(2, {});
    EXPECT_EQ(rig.calls.settle(), 0U);
  });
}

TEST(CallTable, KeepsTheLastCallsAndThoseThatAreNotOver) {
  Rig rig;
  const auto numbers = [&](std::size_t last) {
    std::vector<std::uint64_t> kept;
    for (const CallRecord& call : rig.calls.records(last)) kept.push_back(call.number);
    return kept;
  };
  rig.onLoop([&] {
    for (int i = 0; i < 3; ++i) rig.begin("call");
    EXPECT_EQ(numbers(9), (std::vector<std::uint64_t>{1, 2, 3})) << "none is over";
    rig.calls.end(1, {});
    rig.calls.end(2, makeError(ErrorKind::PeerDied, "rank 1 died"));
    rig.begin("call");
    EXPECT_EQ(numbers(9), (std::vector<std::uint64_t>{3, 4}));
    EXPECT_EQ(numbers(1), (std::vector<std::uint64_t>{4}));
    rig.calls.end(4, makeError(ErrorKind::PeerDied, "rank 1 died"));
    const CallRecord last = rig.calls.records(1).front();
    EXPECT_TRUE(last.failed);
    EXPECT_GE(last.ended, last.begun);
    EXPECT_EQ(rig.calls.records(2).front().ended, 0);
    rig.calls.close();
  });
}

}  // namespace
}  // namespace fairring
