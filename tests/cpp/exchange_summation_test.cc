// Long sums and copies, done in parts, against the same done at once.
#include "exchange/summation.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <numeric>
#include <vector>

namespace fairring {
namespace {

constexpr std::uint64_t kElements = 300'000;  // of 4 bytes: two inputs of them are more than four pieces

std::vector<std::int32_t> counted(std::int32_t from) {
  std::vector<std::int32_t> values(kElements);
  std::iota(values.begin(), values.end(), from);
  return values;
}

std::byte* bytes(std::vector<std::int32_t>& values) { return reinterpret_cast<std::byte*>(values.data()); }

int turnsUntil(Loop& loop, const bool& done) {
  int turns = 0;
  while (!done && ++turns < 100) loop.runOnce(std::chrono::milliseconds(0));
  return turns;
}

TEST(Summation, OfLongSumsTakesTurnsAndGoesOnWhereItStopped) {
  std::vector<std::int32_t> one = counted(1);
  std::vector<std::int32_t> two = counted(1000);
  std::vector<std::int32_t> result(kElements);
  const Reduction sum{.dtype = DType::Int32};
  Reduction mean = sum;
  mean.divisor = 2;
  Loop loop;
  bool done = false;
  loop.post([&] {
    Sums sums;
    sums.open(sum, bytes(two), kElements);  // in place; what follows goes on with it
    sums.add({bytes(one)});
    sums.add({bytes(two)});
    sums.open(mean, bytes(result), kElements);
    sums.add({bytes(two)});
    EXPECT_EQ(sums.bytesRead(), 3 * kElements * sizeof(std::int32_t));
    jobOf(std::move(sums)).run(loop, &loop, 0, [&] { done = true; });
    EXPECT_FALSE(done);
  });
  EXPECT_GT(turnsUntil(loop, done), 3);
  ASSERT_TRUE(done);
  for (std::uint64_t i = 0; i < kElements; ++i) {
    const auto expected = static_cast<std::int32_t>((1001 + 2 * i) / 2);
    ASSERT_EQ(result[i], expected) << i;
  }
}

TEST(Summation, OfLongCopiesTakesTurnsAndGoesOnWhereItStopped) {
  std::vector<std::int32_t> from = counted(7);
  std::vector<std::int32_t> to(kElements);
  Loop loop;
  bool done = false;
  loop.post([&] {
    const std::uint64_t all = kElements * sizeof(std::int32_t);
    const std::uint64_t cut = all / 3 + 1;
    jobOf(std::vector<Copy>{{bytes(to), bytes(from), cut}, {bytes(to) + cut, bytes(from) + cut, all - cut}})
        .run(loop, &loop, 0, [&] { done = true; });
    EXPECT_FALSE(done);
  });
  EXPECT_GT(turnsUntil(loop, done), 1);
  EXPECT_EQ(to, from);
}

TEST(Summation, OfLittleIsOverAtOnce) {
  std::vector<std::int32_t> one = counted(1);
  std::vector<std::int32_t> result(kElements);
  Loop loop;
  int done = 0;
  loop.post([&] {
    Sums sums;
    sums.open({.dtype = DType::Int32}, bytes(result), 3);
    sums.add({bytes(one)});
    sums.add({bytes(one)});
    jobOf(std::move(sums)).run(loop, &loop, 0, [&] { ++done; });
    EXPECT_EQ(done, 1);
    jobOf(std::vector<Copy>{{bytes(result) + 12, bytes(one), 8}}).run(loop, &loop, 0, [&] { ++done; });
    EXPECT_EQ(done, 2);
    jobOf(Sums()).run(loop, &loop, 0, [&] { ++done; });
    jobOf(std::vector<Copy>()).run(loop, &loop, 0, [&] { ++done; });
    EXPECT_EQ(done, 4);
  });
  loop.runOnce(std::chrono::milliseconds(0));
  result.resize(6);
  EXPECT_EQ(result, (std::vector<std::int32_t>{2, 4, 6, 1, 2, 0}));
}

}  // namespace
}  // namespace fairring
