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

TEST(Recorder, KeepsTheLastCallsAndSaysWhenTheyEnded) {
  Rig rig;
  rig.onLoop([&] {
    for (std::uint64_t number = 1; number <= 3; ++number)
      rig.recorder.submitted({.number = number, .text = "a call", .submitted = 1});
    rig.recorder.ended(1, false);  // not kept any more
    rig.recorder.ended(2, true);
  });
  ASSERT_EQ(rig.recorder.calls().size(), 2U);
  const CallRecord& failed = rig.recorder.calls().front();
  EXPECT_EQ(failed.number, 2U);
  EXPECT_TRUE(failed.failed);
  EXPECT_GE(failed.ended, failed.begun);
  EXPECT_GT(failed.begun, failed.submitted);
  EXPECT_EQ(rig.recorder.calls().back().ended, 0);
}

}  // namespace
}  // namespace fairring
