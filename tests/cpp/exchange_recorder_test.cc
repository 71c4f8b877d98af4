#include "exchange/recorder.h"

#include <gtest/gtest.h>

#include <functional>

namespace fairring {
namespace {

struct Rig {
  Loop loop;
  Recorder recorder{loop, {.slices = 3, .calls = 2}};

  void onLoop(const std::function<void()>& task) {
    loop.post(task);
    loop.runOnce(std::chrono::milliseconds(0));
  }
  std::vector<std::uint64_t> slices() {
    std::vector<std::uint64_t> numbers;
    onLoop([&] {
      for (const SliceRecord& record : recorder.slices()) numbers.push_back(record.slice);
    });
    return numbers;
  }
};

TEST(Recorder, KeepsTheLastSlicesInTheOrderInWhichTheyCame) {
  Rig rig;
  EXPECT_TRUE(rig.slices().empty());
  for (std::uint64_t slice = 0; slice < 8; ++slice) {
    rig.onLoop([&] { rig.recorder.add({.slice = slice}); });
    if (slice == 1) {
      EXPECT_EQ(rig.slices(), (std::vector<std::uint64_t>{0, 1}));
    }
  }
  EXPECT_EQ(rig.slices(), (std::vector<std::uint64_t>{5, 6, 7}));
}

TEST(Recorder, LeavesOutWhatWasOverBefore) {
  Rig rig;
  for (std::int64_t time = 1; time <= 5; ++time)
    rig.onLoop([&] { rig.recorder.add({.slice = static_cast<std::uint64_t>(time), .ready = time}); });
  rig.onLoop([&] {
    EXPECT_EQ(rig.recorder.slices(0).size(), 3U);
    ASSERT_EQ(rig.recorder.slices(4).size(), 2U);
    EXPECT_EQ(rig.recorder.slices(4).front().slice, 4U);
    EXPECT_TRUE(rig.recorder.slices(6).empty());
  });
}

TEST(Recorder, KeepsTheLastCallsAndSaysWhenTheyEnded) {
  Rig rig;
  rig.onLoop([&] {
    for (std::uint64_t number = 1; number <= 3; ++number)
      rig.recorder.submitted({.number = number, .text = "a call", .submitted = 1});
    rig.recorder.ended(1, false);  // not kept any more
    rig.recorder.ended(2, true);
    const std::vector<CallRecord> calls = rig.recorder.calls(9);
    ASSERT_EQ(calls.size(), 2U);
    EXPECT_EQ(calls.front().number, 2U);
    EXPECT_TRUE(calls.front().failed);
    EXPECT_GE(calls.front().ended, calls.front().begun);
    EXPECT_GT(calls.front().begun, calls.front().submitted);
    EXPECT_EQ(calls.back().ended, 0);
    ASSERT_EQ(rig.recorder.calls(1).size(), 1U);
    EXPECT_EQ(rig.recorder.calls(1).front().number, 3U);
  });
}

}  // namespace
}  // namespace fairring
