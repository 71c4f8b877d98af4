#include "base/loop_thread.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <thread>

namespace fairring {
namespace {

constexpr std::chrono::milliseconds kNow{0};

// Runs a task on the loop, for calls that only its owner may make.
void on(Loop& loop, const Loop::Task& task) {
  loop.post(task);
  loop.runOnce(kNow);
}

TEST(Loop, RunsPostedTasksInOrder) {
  Loop loop;
  std::string order;
  for (const char c : {'a', 'b', 'c'}) loop.post([&order, c] { order += c; });
  loop.runOnce(kNow);
  EXPECT_EQ(order, "abc");
}

TEST(Loop, WhoeverRunsItOwnsItsProgress) {
  Loop loop;
  EXPECT_FALSE(loop.isCurrent());
  on(loop, [&] { EXPECT_TRUE(loop.isCurrent()); });
  EXPECT_FALSE(loop.isCurrent());
}

TEST(Loop, AnEventHasOneTimeUntilItAsksAnew) {
  Loop::Clock::time_point time;
  Loop loop([&time] { return time += std::chrono::seconds(1); });  // each reading is a second later
  Loop::Clock::time_point first;
  on(loop, [&] {
    first = loop.eventTime();
    EXPECT_EQ(loop.eventTime(), first);
    const Loop::Clock::time_point later = loop.eventTimeAnew();
    EXPECT_GT(later, first);
    EXPECT_EQ(loop.eventTime(), later);
    first = later;
  });
  Loop::Clock::time_point second;
  loop.post([&] { second = loop.eventTime(); });
  loop.post([&] { EXPECT_GT(loop.eventTime(), second); });  // tasks of one turn are events of their own
  loop.runOnce(kNow);
  EXPECT_GT(second, first);
}

// dup() has the lowest number that is free.
TEST(Loop, ASteppedLoopOpensNoDescriptorUntilItWatchesOne) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const Descriptor one(ends[0]);
  const Descriptor other(ends[1]);
  const int free = Descriptor(::dup(one.get())).get();
  Loop loop([] { return Loop::Clock::time_point(); });
  EXPECT_EQ(Descriptor(::dup(one.get())).get(), free);
  ASSERT_EQ(::write(one.get(), "x", 1), 1);
  bool isReadable = false;
  on(loop, [&] { loop.watch(other.get(), EPOLLIN, [&](std::uint32_t) { isReadable = true; }); });
  loop.runOnce(kNow);
  EXPECT_TRUE(isReadable);
  on(loop, [&] { loop.unwatch(other.get()); });
}

// The best of many: each may be late on a busy machine, but none may be early.
TEST(Loop, AWaitingCallerSleepsForLessThanAMillisecond) {
  constexpr std::chrono::microseconds kAhead{200};
  constexpr int kMostTurns = 5000;
  Loop loop;
  auto best = Loop::Clock::duration::max();
  for (int turn = 0; turn < kMostTurns && best >= std::chrono::milliseconds(1); ++turn) {
    bool over = false;
    const auto begin = Loop::Clock::now();
    on(loop, [&] { loop.at(begin + kAhead, [&over] { over = true; }); });
    ASSERT_TRUE(loop.progressUntil([&over] { return over; }, Loop::Clock::time_point::max()));
    best = std::min(best, Loop::Clock::now() - begin);
  }
  EXPECT_GE(best, kAhead);
  EXPECT_LT(best, std::chrono::milliseconds(1));
}

TEST(Loop, TheMostUrgentJobGoesFirstOnePieceATurn) {
  Loop loop;
  std::string order;
  int left = 2;
  on(loop, [&] {
    loop.work(nullptr, 5, [&] { return order += 'b', false; });
    loop.work(nullptr, 3, [&] { return order += 'a', --left > 0; });
  });
  EXPECT_EQ(order, "a");
  loop.runOnce(kNow);
  loop.runOnce(kNow);
  EXPECT_EQ(order, "aab");
}

TEST(Loop, PatientJobsWaitForOthersButAreNeverStarved) {
  Loop loop;
  int patient = 0;
  int others = 0;
  on(loop, [&] {
    loop.work(nullptr, Loop::kPatient, [&] { return ++patient > 0; });
    loop.work(nullptr, 1, [&] { return ++others > 0; });  // never ends
  });
  for (int i = 1; i < 80; ++i) loop.runOnce(kNow);
  EXPECT_EQ(patient, 10);
  EXPECT_EQ(others, 70);
}

TEST(Loop, DroppedWorkRunsNoMoreEvenWhenItDropsItself) {
  Loop loop;
  int pieces = 0;
  const int owner = 0;
  on(loop, [&] {
    loop.work(&owner, 1, [&] {
      ++pieces;
      loop.dropWork(&owner);
      return true;
    });
    loop.work(&owner, 2, [&] { return ++pieces > 0; });
  });
  for (int i = 0; i < 3; ++i) loop.runOnce(kNow);
  EXPECT_EQ(pieces, 1);
}

TEST(Loop, TimersRunWhenTheyAreDueAndNotWhenCancelled) {
  Loop loop;
  std::string order;
  on(loop, [&] {
    const auto now = Loop::Clock::now();
    loop.at(now + std::chrono::milliseconds(2), [&] { order += 'b'; });
    loop.at(now, [&] { order += 'a'; });
    loop.cancel(loop.at(now, [&] { order += 'x'; }));
  });
  while (order.size() < 2) loop.runOnce(std::chrono::seconds(5));
  EXPECT_EQ(order, "ab");
}

TEST(Loop, APostFromAnotherThreadEndsTheWaiting) {
  LoopThread thread;  // which waits for an hour when nothing is due
  bool ran = false;
  thread.runAndWait([&] { ran = true; });
  EXPECT_TRUE(ran);
}

TEST(Loop, WhatATaskThrowsReachesTheHandlersAndTheOtherTasksStillRun) {
  Loop loop;
  std::vector<std::string> told;
  bool ran = false;
  on(loop, [&] { loop.onUncaught(&told, [&](const Error& error) { told.push_back(error.text()); }); });
  loop.post([] { throw Failure(makeError(ErrorKind::System, "no memory")); });
  loop.post([] { throw std::out_of_range("far out"); });
  loop.post([&] { ran = true; });
  loop.runOnce(kNow);
  EXPECT_TRUE(ran);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0], "no memory");
  EXPECT_NE(told[1].find("far out"), std::string::npos);
}

TEST(Loop, WhatIsThrownInATaskThatIsWaitedForIsThrownWhereItIsWaitedFor) {
  LoopThread thread;
  EXPECT_THROW(thread.runAndWait([] { throw Failure(makeError(ErrorKind::System, "no")); }), Failure);
  bool ran = false;
  thread.runAndWait([&] { ran = true; });
  EXPECT_TRUE(ran) << "the loop goes on";
}

TEST(LoopThread, ThatIsSteppedHasTheTimeItIsGivenAndRunsTasksInPlace) {
  Loop::Clock::time_point time{std::chrono::hours(1)};
  LoopThread stepped([&] { return time; });
  std::thread::id ranOn;
  bool isDue = false;
  stepped.runAndWait([&] {
    ranOn = std::this_thread::get_id();
    stepped.loop().at(stepped.loop().now() + std::chrono::seconds(1), [&] { isDue = true; });
  });
  EXPECT_EQ(ranOn, std::this_thread::get_id());
  stepped.loop().runOnce(kNow);
  EXPECT_FALSE(isDue);
  time += std::chrono::seconds(1);
  stepped.loop().runOnce(kNow);
  EXPECT_TRUE(isDue);
  EXPECT_THROW(stepped.runAndWait([] { throw std::runtime_error("of the task"); }), std::runtime_error);
}

TEST(Loop, AHandlerMayUnwatchAnotherThatIsReadyInTheSameTurn) {
  Loop loop;
  std::array<int, 2> fds;
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds.data()), 0);
  const Descriptor left(fds[0]);
  const Descriptor right(fds[1]);
  ASSERT_EQ(::send(fds[0], "x", 1, 0), 1);
  ASSERT_EQ(::send(fds[1], "x", 1, 0), 1);
  int served = 0;
  const auto serve = [&](std::uint32_t) {
    ++served;
    loop.unwatch(fds[0]);
    loop.unwatch(fds[1]);
  };
  on(loop, [&] {
    loop.watch(fds[0], EPOLLIN, serve);
    loop.watch(fds[1], EPOLLIN, serve);
  });
  loop.runOnce(kNow);
  EXPECT_EQ(served, 1);
}

}  // namespace
}  // namespace fairring
