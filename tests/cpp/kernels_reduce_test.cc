// reduce(): the promises of sums, one at a time. Every operation against a reference: kernels_operations_test.cc.
#include "kernels/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/control.h"
#include "kernels/loops.h"
#include "kernels_elements.h"

namespace fairring {
namespace {

std::uint64_t floatBits(float value) { return __builtin_bit_cast(std::uint32_t, value); }
std::uint64_t doubleBits(double value) { return __builtin_bit_cast(std::uint64_t, value); }

class ReduceEveryDType : public testing::TestWithParam<DType> {};
class ReduceEveryFloat : public testing::TestWithParam<DType> {};

std::string nameOf(const testing::TestParamInfo<DType>& info) { return name(info.param); }

INSTANTIATE_TEST_SUITE_P(Kernels, ReduceEveryDType, testing::ValuesIn(kNumbers), nameOf);
INSTANTIATE_TEST_SUITE_P(Kernels, ReduceEveryFloat, testing::ValuesIn(kFloats), nameOf);

TEST_P(ReduceEveryFloat, KeepsTheSignOfZero) {
  const std::uint64_t minusZero = std::uint64_t{1} << (8 * bytesOf(GetParam()) - 1);
  EXPECT_EQ(reduceBits({.dtype = GetParam()}, {minusZero}), minusZero);
  EXPECT_EQ(reduceBits({.dtype = GetParam()}, {minusZero, minusZero}), minusZero);
  EXPECT_EQ(reduceBits({.dtype = GetParam()}, {minusZero, 0}), 0);
}

TEST_P(ReduceEveryDType, KeepsDenormalsWhateverTheCallersRegisterSays) {
#if defined(__x86_64__)
  constexpr std::uint64_t kFlushAndRoundUp = kStandardControl | 0x8040 | 0x4000;
#else
  constexpr std::uint64_t kFlushAndRoundUp = kStandardControl | 1 << 24 | 1 << 22;
#endif
  const std::uint64_t before = floatingPointControl();
  setFloatingPointControl(kFlushAndRoundUp);
  const std::uint64_t sum = reduceBits({.dtype = GetParam()}, {1, 2});  // of the smallest denormals; of integers too
  const std::uint64_t after = floatingPointControl();
  setFloatingPointControl(before);
  EXPECT_EQ(sum, 3);
  EXPECT_EQ(after, kFlushAndRoundUp);
}

TEST(Reduce, TakesFloatsInTheOrderGiven) {
  EXPECT_EQ(reduceBits({DType::Float32}, {floatBits(1e8F), floatBits(-1e8F), floatBits(1)}), floatBits(1));
  EXPECT_EQ(reduceBits({DType::Float32}, {floatBits(1), floatBits(1e8F), floatBits(-1e8F)}), floatBits(0));
  const std::uint64_t large = floatBits(1e8F);
  const std::uint64_t minusLarge = floatBits(-1e8F);
  EXPECT_EQ(reduceBits({DType::Float32}, {0, 0, large, minusLarge, floatBits(1)}), floatBits(1));
  EXPECT_EQ(reduceBits({DType::Float32}, {0, 0, floatBits(1), large, minusLarge}), floatBits(0));
  EXPECT_EQ(reduceBits({DType::Float64}, {doubleBits(1), doubleBits(1e17), doubleBits(-1e17)}), doubleBits(0));
}

TEST(Reduce, DoesNotContractAScaledSumIntoOneRounding) {
  constexpr float kOneAndABit = 1 + 0x1p-12F;  // its square needs 25 bits
  const float product = kOneAndABit * kOneAndABit;
  const std::uint64_t sum = reduceBits({.dtype = DType::Float32}, {floatBits(-1), floatBits(kOneAndABit)}, kOneAndABit);
  EXPECT_EQ(sum, floatBits(product - kOneAndABit));
}

TEST(Reduce, ScalesBeforeItAddsSoThatAnAverageOfLargeHalvesIsFinite) {
  constexpr std::uint64_t kLargestHalf = 0x7bff;
  EXPECT_EQ(reduceBits({.dtype = DType::Float16}, {kLargestHalf, kLargestHalf}, 0.5), kLargestHalf);
  EXPECT_EQ(reduceBits({DType::Float16}, {kLargestHalf, kLargestHalf}), 0x7c00);
}

class ReduceSixteenBits : public testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Kernels, ReduceSixteenBits, testing::Values(DType::BFloat16, DType::Float16), nameOf);

TEST_P(ReduceSixteenBits, ReturnsEveryBitPatternOfOneInputUnchanged) {
  constexpr std::size_t kPatterns = 1 << 16;
  const std::uint64_t infinity = GetParam() == DType::BFloat16 ? 0x7f80 : 0x7c00;
  Elements in(GetParam(), kPatterns);
  for (std::size_t i = 0; i < kPatterns; ++i) in.set(i, i);
  for (const Isa& isa : runnableIsas()) {
    for (const std::size_t count : {kPatterns, std::size_t{7}}) {  // in vectors, and what is left of one
      for (std::size_t first = 0; first < kPatterns; first += count) {
        const std::size_t size = std::min(count, kPatterns - first);
        Elements out(GetParam(), size);
        const Input input{static_cast<unsigned char*>(in.data()) + 2 * first};
        isa.reduce({{.dtype = GetParam()}, out.data(), &input, 1, size});
        for (std::size_t i = 0; i < size; ++i) {
          const std::uint64_t bits = first + i;
          if ((bits & 0x7fff) > infinity) {
            ASSERT_GT(out.get(i) & 0x7fff, infinity) << isa.name << ": a NaN did not stay one: " << bits;
          } else {
            ASSERT_EQ(out.get(i), bits) << isa.name;
          }
        }
      }
    }
  }
}

struct Rounding {
  DType dtype;
  std::vector<std::uint64_t> inputs;
  std::uint64_t sum;
};

TEST(Reduce, RoundsSixteenBitSumsOnceToNearestEven) {
  const Rounding table[] = {
      {DType::BFloat16, {0x3f80, 0x3b80}, 0x3f80},          // 1 + half a place: down to even
      {DType::BFloat16, {0x3f81, 0x3b80}, 0x3f82},          // the next: up to even
      {DType::BFloat16, {0x3f80, 0x3b81}, 0x3f81},          // a little more than half: up
      {DType::BFloat16, {0x3f80, 0x3b80, 0x3b80}, 0x3f81},  // once: each half alone would be lost
      {DType::BFloat16, {0x7f7f, 0x7b00}, 0x7f80},          // overflow at half a place above the largest
      {DType::BFloat16, {0x7f7f, 0x7a80}, 0x7f7f},         {DType::BFloat16, {0xff7f, 0xff7f}, 0xff80},
      {DType::Float16, {0x3c00, 0x1000}, 0x3c00},          {DType::Float16, {0x3c01, 0x1000}, 0x3c02},
      {DType::Float16, {0x3c00, 0x1001}, 0x3c01},          {DType::Float16, {0x3c00, 0x1000, 0x1000}, 0x3c01},
      {DType::Float16, {0x7bff, 0x4c00}, 0x7c00},  // 65504 + 16: halfway to 65536
      {DType::Float16, {0x7bff, 0x4bff}, 0x7bff},          {DType::Float16, {0xfbff, 0xfbff}, 0xfc00},
      {DType::Float16, {0x03ff, 0x0001}, 0x0400},  // the largest denormal and the smallest: the smallest normal
      {DType::Float16, {0x7c00, 0x3c00}, 0x7c00},
  };
  for (const Rounding& row : table) {
    EXPECT_EQ(reduceBits({row.dtype}, row.inputs), row.sum) << name(row.dtype) << std::hex << " " << row.inputs[0];
  }
  EXPECT_EQ(reduceBits({.dtype = DType::Float16}, {0x0001}, 0.5),
            0x0000);  // half of the smallest denormal: to even
  EXPECT_EQ(reduceBits({.dtype = DType::Float16}, {0x0003}, 0.5), 0x0002);
}

TEST(Reduce, RoundsEightBitSumsOnceToNearestEven) {
  const Rounding table[] = {
      {DType::Float8E4M3, {0x38, 0x18}, 0x38},        // 1 + half a place: down to even
      {DType::Float8E4M3, {0x39, 0x18}, 0x3a},        // the next: up to even
      {DType::Float8E4M3, {0x38, 0x18, 0x18}, 0x39},  // once: each half alone would be lost
      {DType::Float8E4M3, {0x7e, 0x58}, 0x7e},        // 448 + 16: halfway to what is too large, down to even
      {DType::Float8E4M3, {0x7e, 0x59}, 0x7f},        // beyond: there are no infinities
      {DType::Float8E4M3, {0xfe, 0xfe}, 0xff},
      {DType::Float8E4M3, {0x07, 0x01}, 0x08},  // the largest denormal and the smallest: the smallest normal
      {DType::Float8E5M2, {0x3c, 0x30}, 0x3c},  // 1 + half a place
      {DType::Float8E5M2, {0x3d, 0x30}, 0x3e},
      {DType::Float8E5M2, {0x3c, 0x30, 0x30}, 0x3d},
      {DType::Float8E5M2, {0x7b, 0x6b}, 0x7b},
      {DType::Float8E5M2, {0x7b, 0x6c}, 0x7c},  // 57344 + 4096: halfway to infinity, up to even
      {DType::Float8E5M2, {0xfb, 0xfb}, 0xfc},
      {DType::Float8E5M2, {0x03, 0x01}, 0x04},
  };
  for (const Rounding& row : table) {
    EXPECT_EQ(reduceBits({row.dtype}, row.inputs), row.sum) << name(row.dtype) << std::hex << " " << row.inputs[0];
  }
}

class ReduceEightBits : public testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Kernels, ReduceEightBits, testing::Values(DType::Float8E4M3, DType::Float8E5M2), nameOf);

TEST_P(ReduceEightBits, ReturnsEveryBitPatternOfOneInputUnchanged) {
  const std::uint64_t greatest = GetParam() == DType::Float8E4M3 ? 0x7e : 0x7c;
  for (std::uint64_t bits = 0; bits < 256; ++bits) {
    const std::uint64_t same = reduceBits({.dtype = GetParam()}, {bits});
    if ((bits & 0x7f) > greatest) {
      EXPECT_GT(same & 0x7f, greatest) << "a NaN did not stay one: " << bits;
    } else {
      EXPECT_EQ(same, bits);
    }
  }
}

TEST(Reduce, WrapsIntegerSums) {
  constexpr auto kLargest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(reduceBits({DType::Int64}, {kLargest, 1}), kLargest + 1);
}

TEST(Reduce, DividesIntegerSumsOnceTowardZero) {
  const auto bits = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  EXPECT_EQ(reduceBits({.dtype = DType::Int64, .divisor = 2}, {bits(3), bits(4)}), bits(3));
  EXPECT_EQ(reduceBits({.dtype = DType::Int64, .divisor = 2}, {bits(-3), bits(-4)}), bits(-3));
  EXPECT_EQ(reduceBits({.dtype = DType::Int64, .divisor = 3}, {bits(1), bits(1), bits(1)}), bits(1));
}

}  // namespace
}  // namespace fairring
