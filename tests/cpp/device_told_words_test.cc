// Words that streams write and the loop polls, with a time of the test's own.
#include "device/told_words.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <vector>

namespace fairring {
namespace {

using std::chrono::microseconds;

class ToldWordsTest : public testing::Test {
 protected:
  void await(std::size_t index, ToldWords::Word value, int number) {
    loop_.post(
        [this, index, value, number] { words_->await(index, value, [this, number] { reached_.push_back(number); }); });
    loop_.runOnce({});
  }
  // Time passes in small steps.
  void pass(microseconds time) {
    for (const auto end = now_ + time; now_ < end; now_ += microseconds(5)) loop_.runOnce({});
  }
  ToldWords::Word& word(std::size_t index) { return memory_[index * ToldWords::kDistance]; }

  Loop::Clock::time_point now_{std::chrono::seconds(1)};
  Loop loop_{[this] { return now_; }};
  std::array<ToldWords::Word, 2 * ToldWords::kDistance> memory_{};
  std::shared_ptr<ToldWords> words_ = std::make_shared<ToldWords>(loop_, memory_.data(), 2);
  std::vector<int> reached_;
};

TEST_F(ToldWordsTest, AreReachedInTheOrderInWhichTheyCome) {
  await(0, 1, 1);
  await(0, 2, 2);
  await(1, 1, 3);
  pass(microseconds(200));
  EXPECT_TRUE(reached_.empty());
  word(1) = 1;
  pass(microseconds(200));
  EXPECT_EQ(reached_, std::vector{3});
  word(0) = 2;
  pass(microseconds(200));
  EXPECT_EQ(reached_, (std::vector{3, 1, 2}));
}

TEST_F(ToldWordsTest, AreKnownAnEighthOfTheTimeLaterAtMost) {
  for (const int waited : {10, 400, 2'000}) {
    word(0) = 0;
    reached_.clear();
    await(0, 1, 1);
    pass(microseconds(waited));
    word(0) = 1;
    pass(microseconds(waited / 8) + ToldWords::kSoonest + microseconds(10));
    EXPECT_EQ(reached_.size(), 1U) << "after " << waited << " us";
  }
}

TEST_F(ToldWordsTest, AreNotLookedAtOnceTheyAreStopped) {
  await(0, 1, 1);
  loop_.post([this] { words_->stop(); });
  loop_.runOnce({});
  word(0) = 1;
  await(0, 1, 2);
  pass(microseconds(1'000));
  EXPECT_TRUE(reached_.empty());
}

}  // namespace
}  // namespace fairring
