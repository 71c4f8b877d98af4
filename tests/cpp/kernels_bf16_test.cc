// fp32 as bf16 and back: rounding, its errors, and arrays that are made in each other's place.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/bf16.h"

namespace fairring {
namespace {

constexpr std::size_t kElements = 5000;

float floatOf(Bf16 bits) { return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16); }

std::vector<float> randomFloats(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(kElements);
  for (float& value : values) {
    value = std::ldexp(std::uniform_real_distribution<float>(-1, 1)(random), static_cast<int>(random() % 80) - 40);
  }
  return values;
}

TEST(Bf16, RoundingAndWhatItLosesAreTheValue) {
  const std::vector<float> values = randomFloats(1);
  std::vector<float> lost(kElements, 0.0F);
  std::vector<Bf16> rounded(kElements);
  roundToBf16(values.data(), rounded.data(), lost.data(), kElements);
  for (std::size_t i = 0; i < kElements; ++i) {
    EXPECT_EQ(floatOf(rounded[i]) + lost[i], values[i]);
    EXPECT_LE(std::abs(lost[i]), std::abs(values[i]) * 0x1p-8F);
  }
}

TEST(Bf16, WhatWasLostIsAddedOnce) {
  std::vector<float> values{1.0F, 2.0F};
  std::vector<float> lost{0.25F, -0.5F};
  addLost(values.data(), lost.data(), 2);
  EXPECT_EQ(values, (std::vector<float>{1.25F, 1.5F}));
  EXPECT_EQ(lost, (std::vector<float>{0.0F, 0.0F}));
}

TEST(Bf16, NothingIsLostOfWhatIsNoFiniteNumber) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values{kInfinity, -kInfinity, NAN, std::numeric_limits<float>::max()};
  std::vector<float> lost(4, 0.5F);
  std::vector<Bf16> rounded(4);
  roundToBf16(values.data(), rounded.data(), lost.data(), 4);
  EXPECT_EQ(lost, std::vector<float>(4, 0.5F));
  EXPECT_EQ(floatOf(rounded[0]), kInfinity);
  EXPECT_EQ(floatOf(rounded[1]), -kInfinity);
  EXPECT_TRUE(std::isnan(floatOf(rounded[2])));
  EXPECT_EQ(floatOf(rounded[3]), kInfinity) << "nearer than the largest bf16";
}

TEST(Bf16, MagnitudesAreSummedWithoutWhatIsNoFiniteNumber) {
  constexpr float kMost = std::numeric_limits<float>::max();
  std::vector<float> values(3001, -0.5F);
  values[7] = NAN;
  values[2000] = std::numeric_limits<float>::infinity();
  values[3000] = 2.0F;
  EXPECT_EQ(magnitudeOf(values.data(), values.size()), 2998 * 0.5 + 2);
  EXPECT_EQ(magnitudeOf(values.data(), 0), 0);
  EXPECT_EQ(magnitudeOf(std::vector<float>(100, kMost).data(), 100), 100 * static_cast<double>(kMost));
}

TEST(Bf16, ArraysMayBeMadeInEachOthersPlace) {
  const std::vector<float> values = randomFloats(2);
  std::vector<Bf16> apart(kElements);
  roundToBf16(values.data(), apart.data(), nullptr, kElements);

  std::vector<float> memory = values;
  auto* const first = reinterpret_cast<Bf16*>(memory.data());
  roundToBf16(memory.data(), first, nullptr, kElements);
  EXPECT_EQ(std::memcmp(first, apart.data(), kElements * sizeof(Bf16)), 0);

  Bf16* const second = first + kElements;
  std::memcpy(second, apart.data(), kElements * sizeof(Bf16));
  widen(second, memory.data(), kElements);
  for (std::size_t i = 0; i < kElements; ++i) EXPECT_EQ(memory[i], floatOf(apart[i]));
}

}  // namespace
}  // namespace fairring
