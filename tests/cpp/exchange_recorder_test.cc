#include "exchange/recorder.h"

#include <gtest/gtest.h>

#include <functional>

namespace fairring {
namespace {

struct Rig {
  Loop loop;
  Recorder recorder{loop, 3};

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

}  // namespace
}  // namespace fairring
