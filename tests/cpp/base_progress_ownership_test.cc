#include "base/progress_ownership.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/loop_thread.h"

namespace fairring {
namespace {

constexpr auto kNever = Loop::Clock::time_point::max();

TEST(ProgressOwnership, OnlyOneThreadHoldsIt) {
  ProgressOwnership role;
  EXPECT_TRUE(role.take());
  EXPECT_TRUE(role.isMine());
  std::thread([&] {
    EXPECT_FALSE(role.take());
    EXPECT_FALSE(role.isMine());
  }).join();
  role.give({});
  EXPECT_FALSE(role.isMine());
  EXPECT_TRUE(role.take());
  role.give({});
}

TEST(ProgressOwnership, NobodySleepsOverWhatHasBeenPosted) {
  ProgressOwnership role;
  ASSERT_TRUE(role.take());
  role.post([] {});
  EXPECT_FALSE(role.fallAsleep());
  EXPECT_FALSE(role.stepAside(kNever));
  EXPECT_EQ(role.takePosted().size(), 1U);
  EXPECT_TRUE(role.fallAsleep());
  role.awake();
  EXPECT_TRUE(role.stepAside(kNever));
  EXPECT_FALSE(role.isMine());
}

TEST(Loop, ACallerServesItWhileItsThreadSleeps) {
  LoopThread thread;
  std::atomic<std::thread::id> served;
  const auto task = [&] { thread.loop().post([&] { served = std::this_thread::get_id(); }); };
  while (!thread.loop().postAndTake(task)) std::this_thread::yield();  // until it sleeps
  thread.loop().runPostedAndGive();
  EXPECT_EQ(served, std::this_thread::get_id());
}

TEST(Loop, ACallersOwnReadingOfTheClockIsTheTimeOfItsTaskAlone) {
  Loop loop;
  const Loop::Clock::time_point read = Loop::Clock::now();
  std::vector<Loop::Clock::time_point> times;
  const auto note = [&] { times.push_back(loop.eventTime()); };
  ASSERT_TRUE(loop.postAndTake([&] {
    note();
    loop.post(note);
  }));
  loop.runPostedAndGive(read);
  ASSERT_EQ(times.size(), 2U);
  EXPECT_EQ(times.front(), read);
  EXPECT_GT(times.back(), read);
}

TEST(Loop, ACallerThatServesBrieflyLeavesLongWorkToTheThread) {
  LoopThread thread;
  std::atomic<bool> left = false;
  std::atomic<bool> done = false;
  const auto longWork = [&] {
    if (!left) return true;
    done = true;
    done.notify_all();
    return false;
  };
  while (!thread.loop().postAndTake([] {})) std::this_thread::yield();
  thread.loop().post([&] { thread.loop().work(nullptr, 0, longWork); });
  thread.loop().progressAndGive();
  left = true;
  done.wait(false);
  SUCCEED();
}

TEST(Loop, WhatACallerLeavesUndoneItsThreadDoes) {
  LoopThread thread;
  std::atomic<bool> done = false;
  const auto longWork = [&, pieces = 0]() mutable {
    if (++pieces < 1000) return true;
    done = true;
    done.notify_all();
    return false;
  };
  const auto begin = [&] { thread.loop().work(nullptr, 0, longWork); };
  bool over = false;
  thread.loop().post([&] {
    begin();
    over = true;
  });
  while (!thread.loop().progressUntil([&] { return over; }, kNever) && !done) std::this_thread::yield();
  done.wait(false);
  SUCCEED();
}

TEST(Loop, ACallerThatWaitsIsWokenByADescriptor) {
  LoopThread thread;
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const Descriptor mine(ends[0]);
  const Descriptor other(ends[1]);
  std::atomic<bool> arrived = false;
  thread.runAndWait([&] {
    thread.loop().watch(mine.get(), EPOLLIN, [&](std::uint32_t) {
      thread.loop().unwatch(mine.get());
      arrived = true;
      arrived.notify_all();
    });
  });
  std::thread peer([&] { ASSERT_EQ(::write(other.get(), "x", 1), 1); });
  if (!thread.loop().progressUntil([&] { return arrived.load(); }, kNever)) arrived.wait(false);
  peer.join();
  EXPECT_TRUE(arrived);
}

TEST(Loop, ACallerThatWaitsHasItAfterTheThreadsTurn) {
  std::atomic<bool> stop = false;
  bool served = false;
  LoopThread thread;
  thread.runAndWait([&] { thread.loop().work(nullptr, 0, [&] { return !stop; }); });  // it never sleeps
  EXPECT_TRUE(thread.loop().progressUntil([&] { return std::exchange(served, true); }, kNever));
  EXPECT_TRUE(served);
  stop = true;
}

TEST(Loop, TasksInARowAreServedByTheirCallerOrTheThread) {
  std::atomic<int> served = 0;
  LoopThread thread;
  constexpr int kTasks = 1000;
  for (int task = 0; task < kTasks; ++task) {
    const auto serve = [&] {
      ++served;
      served.notify_all();
    };
    if (thread.loop().postInRow(serve)) thread.loop().progressAndGive();
  }
  for (int now = served; now < kTasks; now = served) served.wait(now);
  SUCCEED();
}

TEST(Loop, ACallerStopsServingAtItsDeadline) {
  LoopThread thread;
  const auto soon = Loop::Clock::now() + std::chrono::milliseconds(20);
  while (!thread.loop().progressUntil([] { return false; }, soon)) std::this_thread::yield();
  EXPECT_GE(Loop::Clock::now(), soon);
}

TEST(Loop, AFlagThatIsPolledNeedsNoDescriptor) {
  LoopThread thread;
  std::atomic<int> mark = 0;
  std::atomic<bool> polling = false;
  bool seen = false;
  const int owner = 0;
  thread.runAndWait([&] {
    thread.loop().setSpinTime(std::chrono::seconds(100));
    const auto poll = [&] {
      const bool sawBefore = seen;
      seen = mark > 0;
      return seen && !sawBefore;
    };
    thread.loop().addPoller(&owner, {poll, [&](bool on) { polling = on; }, [] {}});
  });
  std::thread peer([&] {
    while (!polling) std::this_thread::yield();
    mark = 1;
  });
  while (!thread.loop().progressUntil([&] { return seen; }, kNever)) std::this_thread::yield();
  peer.join();
  EXPECT_FALSE(polling);
  thread.runAndWait([&] { thread.loop().removePoller(&owner); });
}

TEST(Loop, TheEndOfATurnComesAfterAllThatItServed) {
  Loop loop;
  std::vector<std::string> order;
  const auto note = [&order](const char* what) { return [&order, what] { order.emplace_back(what); }; };
  loop.post([&] {
    loop.addPoller(&loop, {[] { return false; }, [](bool) {}, note("end")});
    loop.work(&loop, 0, [&] {
      order.emplace_back("piece");
      return false;
    });
    loop.post(note("next"));
  });
  loop.post(note("task"));
  loop.runOnce(std::chrono::milliseconds(0));
  EXPECT_EQ(order, (std::vector<std::string>{"task", "piece", "end"}));
  ASSERT_TRUE(loop.postAndTake(note("taken")));
  loop.runPostedAndGive();
  ASSERT_TRUE(loop.postAndTake(note("served")));
  loop.progressAndGive();
  EXPECT_EQ(order, (std::vector<std::string>{"task", "piece", "end", "next", "taken", "end", "served", "end"}));
}

TEST(Loop, ATurnEndsAfterAPollThatSawSomethingToo) {
  Loop loop;
  std::vector<std::string> order;
  bool seen = false;
  loop.post([&] {
    loop.setSpinTime(std::chrono::seconds(100));
    const auto poll = [&] {
      order.emplace_back("look");
      return !std::exchange(seen, true);
    };
    loop.addPoller(&loop, {poll, [](bool) {}, [&] { order.emplace_back("end"); }});
  });
  ASSERT_TRUE(loop.progressUntil([&] { return seen; }, kNever));
  // A turn with the task above, and one after the poll; the last poll is made when polling ends.
  EXPECT_EQ(order, (std::vector<std::string>{"end", "look", "end", "look"}));
}

TEST(Loop, ATurnEndsAfterWhatEndedASleepToo) {
  Loop loop;
  const Descriptor bell(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  std::vector<std::string> order;
  const auto end = [&] {
    order.emplace_back("end");
    const std::uint64_t one = 1;
    if (order.size() == 1) {
      ASSERT_EQ(::write(bell.get(), &one, sizeof one), ssize_t{sizeof one});
    }
  };
  loop.post([&] {
    loop.watch(bell.get(), EPOLLIN, [&](std::uint32_t) {
      order.emplace_back("rung");
      loop.unwatch(bell.get());
    });
    loop.addPoller(&loop, {[] { return false; }, [](bool) {}, end});
    order = {"begun"};
  });
  loop.runOnce(std::chrono::milliseconds(0));
  order.clear();
  loop.runOnce(std::chrono::seconds(5));
  EXPECT_EQ(order, (std::vector<std::string>{"end", "rung", "end"}));
}

// Many threads post, wait for their tasks, and serve whenever they can: no task is lost, and no waiter is left behind.
TEST(Loop, ManyCallersAndTheThreadTakeTurns) {
  LoopThread thread;
  int sum = 0;  // the role's holder only
  constexpr int kThreads = 4;
  constexpr int kCalls = 2000;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kThreads; ++caller) {
    callers.emplace_back([&] {
      for (int call = 0; call < kCalls; ++call) {
        const auto done = std::make_shared<std::atomic<bool>>(false);  // the task may outlive its caller's wait
        const auto task = [&, done] {
          ASSERT_TRUE(thread.loop().isCurrent());
          ++sum;
          *done = true;
          done->notify_all();
        };
        if (call % 3 == 0) {
          thread.loop().post(task);
        } else if (thread.loop().postAndTake(task)) {
          call % 3 == 1 ? thread.loop().runPostedAndGive() : thread.loop().progressAndGive();
        }
        if (!thread.loop().progressUntil([&] { return done->load(); }, kNever)) done->wait(false);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, kThreads * kCalls);
}

}  // namespace
}  // namespace fairring
