// reduce(): the promises of sums, one at a time. Every operation against a reference: kernels_operations_test.cc.
#include "kernels/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/control.h"
#include "kernels/loops.h"
#include "kernels_elements.h"
#include "kernels_reference.h"

namespace fairring {
namespace {

std::uint64_t floatBits(float value) { return __builtin_bit_cast(std::uint32_t, value); }
std::uint64_t doubleBits(double value) { return __builtin_bit_cast(std::uint64_t, value); }

class ReduceEveryDType : public testing::TestWithParam<DType> {};

std::string nameOf(const testing::TestParamInfo<DType>& info) { return name(info.param); }

INSTANTIATE_TEST_SUITE_P(Kernels, ReduceEveryDType, testing::ValuesIn(kNumbers), nameOf);

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

class ReduceSmallFloats : public testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Kernels, ReduceSmallFloats,
                         testing::Values(DType::BFloat16, DType::Float16, DType::Float8E4M3, DType::Float8E5M2),
                         nameOf);

TEST_P(ReduceSmallFloats, ReturnEveryBitPatternOfOneInputUnchanged) {
  const std::size_t bytes = bytesOf(GetParam());
  const std::size_t patterns = std::size_t{1} << 8 * bytes;
  const reference::Format format = reference::formatOf(GetParam());
  Elements in(GetParam(), patterns);
  for (std::size_t i = 0; i < patterns; ++i) in.set(i, i);
  for (const Isa& isa : runnableIsas()) {
    for (const std::size_t count : {patterns, std::size_t{7}}) {  // in vectors, and what is left of one
      for (std::size_t first = 0; first < patterns; first += count) {
        const std::size_t size = std::min(count, patterns - first);
        Elements out(GetParam(), size);
        const Input input{static_cast<unsigned char*>(in.data()) + bytes * first};
        isa.reduce({{.dtype = GetParam()}, out.data(), &input, 1, size});
        for (std::size_t i = 0; i < size; ++i) {
          const std::uint64_t bits = first + i;
          if (format.isNan(bits)) {
            ASSERT_TRUE(format.isNan(out.get(i))) << isa.name << ": a NaN did not stay one: " << bits;
          } else {
            ASSERT_EQ(out.get(i), bits) << isa.name;
          }
        }
      }
    }
  }
}

TEST(Reduce, RoundsSixteenBitSumsOnceToNearestEven) {
  const struct {
    DType dtype;
    std::vector<std::uint64_t> inputs;
    std::uint64_t sum;
  } table[] = {
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
  for (const auto& row : table) {
    EXPECT_EQ(reduceBits({row.dtype}, row.inputs), row.sum) << name(row.dtype) << std::hex << " " << row.inputs[0];
  }
  EXPECT_EQ(reduceBits({.dtype = DType::Float16}, {0x0001}, 0.5),
            0x0000);  // half of the smallest denormal: to even
  EXPECT_EQ(reduceBits({.dtype = DType::Float16}, {0x0003}, 0.5), 0x0002);
}

}  // namespace
}  // namespace fairring
