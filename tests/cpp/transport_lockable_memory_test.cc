// Promises of memory to several groups, by a system that lets a process lock so much.
#include "transport/lockable_memory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace fairring {
namespace {

TEST(LockableMemory, TheSecondGroupDoesNotGetWhatTheFirstWasPromised) {
  std::uint64_t unlocked = 100;
  LockableMemory memory([&] { return unlocked; });
  LockableMemory::Promise first = memory.promise(60, "a group");
  EXPECT_EQ(memory.left().bytes, 40U);
  try {
    memory.promise(60, "a group of 7");
    FAIL();
  } catch (const Failure& refusal) {
    const std::string told = refusal.what();
    for (const char* words :
         {"may lock 40 B", "60 B that are promised", "a group of 7 wants up to 60 B", "ulimit -l unlimited"})
      EXPECT_NE(told.find(words), std::string::npos) << told;
  }
  unlocked -= 60;  // it has locked them
  first.giveBack();
  EXPECT_EQ(memory.left().bytes, 40U);
  EXPECT_EQ(memory.left().promised, 0U);
  first.giveBack();
  EXPECT_EQ(memory.left().bytes, 40U);
}

TEST(LockableMemory, APromiseEndsWithItsOwnerAndMovesToAnother) {
  LockableMemory memory([] { return 100; });
  {
    LockableMemory::Promise one = memory.promise(60, "a group");
    LockableMemory::Promise other = memory.promise(30, "a group");
    other = std::move(one);
    EXPECT_EQ(memory.left().bytes, 40U) << "the 30 B went back";
    const LockableMemory::Promise third(std::move(other));
    EXPECT_EQ(memory.left().promised, 60U);
  }
  EXPECT_EQ(memory.left().bytes, 100U);
}

TEST(LockableMemory, WhatIsLockedAndPromisedAtOnceLeavesNoLessThanNothing) {
  LockableMemory memory([locked = 0]() mutable { return 100 - std::exchange(locked, 60); });
  const LockableMemory::Promise one = memory.promise(60, "a group");
  EXPECT_EQ(memory.left().bytes, 0U);
}

TEST(LockableMemory, WithoutALimitThereIsEnoughForAll) {
  LockableMemory memory([] { return std::nullopt; });
  const LockableMemory::Promise one = memory.promise(1ULL << 60, "a group");
  const LockableMemory::Promise other = memory.promise(1ULL << 60, "a group");
  EXPECT_FALSE(memory.left().bytes);
}

TEST(LockableMemory, WhatIsLockedAndGivenBackWhileTheSystemIsAskedStillCounts) {
  std::uint64_t unlocked = 100;
  LockableMemory::Promise first;
  LockableMemory memory([&] {
    const std::uint64_t seen = unlocked;
    if (std::exchange(unlocked, 40) == 100) first.giveBack();  // another group locks its memory just after
    return seen;
  });
  unlocked = 101;
  first = memory.promise(60, "a group");
  unlocked = 100;
  EXPECT_THROW(memory.promise(50, "a group"), Failure);
  EXPECT_EQ(memory.left().bytes, 40U);
}

TEST(LockableMemory, AForkedChildHasPromisedNothingAndItsParentsPromisesMeanNothingThere) {
  LockableMemory& memory = LockableMemory::ofThisProcess();
  LockableMemory::Promise inherited = memory.promise(1000, "a group");
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    const bool hasNone = memory.left().promised == 0;
    LockableMemory::Promise own = memory.promise(10, "a group");
    inherited.giveBack();
    ::_exit(hasNone && memory.left().promised == 10 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(memory.left().promised, 1000U);
}

// A child that waited for a mutex which nobody holds there would be ended by its alarm.
TEST(LockableMemory, AChildIsForkedWholeWhileAnotherThreadAsks) {
  LockableMemory& memory = LockableMemory::ofThisProcess();
  const std::jthread other([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) memory.promise(10, "a group").giveBack();
  });
  for (int round = 0; round < 30; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      LockableMemory::Promise own = memory.promise(10, "a group");
      own.giveBack();
      ::_exit(memory.left().promised == 0 ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << round;
  }
}

TEST(LockableMemory, ThreadsThatAskAtOnceAreNotPromisedMoreThanThereIs) {
  LockableMemory memory([] { return 1000; });
  std::atomic<std::uint64_t> given = 0;
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int round = 0; round < 1000; ++round) {
        try {
          const LockableMemory::Promise one = memory.promise(300, "a group");
          EXPECT_LE(given += 300, 1000U);
          given -= 300;
        } catch (const Failure&) {
          EXPECT_LE(given, 1000U);
        }
      }
    });
  }
  threads.clear();
  EXPECT_EQ(memory.left().bytes, 1000U);
}

}  // namespace
}  // namespace fairring
