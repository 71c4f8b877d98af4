// fp32 as blocks of integers and back: every bit beside a slow reference, for every instruction set, what becomes of
// numbers that are no ordinary ones, arrays that are made in each other's place, and bytes that no encoder has written.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/loops.h"
#include "kernels/quantized.h"

namespace fairring {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
constexpr Quantization kKinds[] = {Quantization::Int8, Quantization::Int4};
constexpr std::size_t kSizes[] = {0, 1, 2, 3, 127, 128, 129, 130, 255, 384, 1001};

double most(Quantization kind) { return kind == Quantization::Int8 ? 127 : 7; }

float bf16(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  return __builtin_bit_cast(float, (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000U);
}

// By arithmetic on doubles, in which all of it is exact but the division.
float scaleOf(Quantization kind, const std::vector<float>& block) {
  double largest = 0;
  for (const float value : block) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(static_cast<double>(value)));
  }
  int exponent = 0;
  std::frexp(static_cast<float>(largest / most(kind)), &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent, -125) - 8);
  const double scale = std::ceil(static_cast<float>(largest / most(kind)) / unit) * unit;
  return scale < 0x1p-126 ? 0.0F : static_cast<float>(scale);
}

std::vector<float> decodedBlock(Quantization kind, const std::vector<float>& block) {
  if (block.size() == 1) return {std::isnan(block[0]) ? NAN : bf16(block[0])};
  const float scale = scaleOf(kind, block);
  std::vector<float> decoded;
  for (const float value : block) {
    const float integer = scale == 0 ? 0.0F : std::nearbyint(value * (1 / scale));
    decoded.push_back(std::isfinite(value) ? (integer == 0 ? 0.0F : integer * scale) : NAN);
  }
  return decoded;
}

std::vector<float> reference(Quantization kind, const std::vector<float>& values) {
  std::vector<float> decoded;
  for (std::size_t begin = 0; begin < values.size(); begin += kQuantizedBlock) {
    const auto end = std::min(begin + kQuantizedBlock, values.size());
    const auto block = decodedBlock(
        kind, {values.begin() + static_cast<std::ptrdiff_t>(begin), values.begin() + static_cast<std::ptrdiff_t>(end)});
    decoded.insert(decoded.end(), block.begin(), block.end());
  }
  return decoded;
}

std::vector<std::uint32_t> bitsOf(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    bits[i] = std::isnan(values[i]) ? 0x7fc00000U : __builtin_bit_cast(std::uint32_t, values[i]);
  return bits;
}

std::vector<float> randomFloats(unsigned seed, std::size_t elements, int exponents) {
  std::mt19937 random(seed);
  std::vector<float> values(elements);
  for (float& value : values) {
    const int exponent = static_cast<int>(random() % static_cast<unsigned>(exponents)) - exponents / 2;
    value = std::ldexp(std::uniform_real_distribution<float>(-1, 1)(random), exponent);
  }
  return values;
}

// Arrays of the size: ordinary ones, and each with one special number after the other put in at every seventh place.
std::vector<std::vector<float>> tables(std::size_t elements) {
  std::vector<std::vector<float>> all{std::vector<float>(elements, 0.0F), std::vector<float>(elements, -0.0F),
                                      std::vector<float>(elements, kDenormal), std::vector<float>(elements, -3.0F),
                                      std::vector<float>(elements, kLargest)};
  for (const int exponents : {1, 4, 20, 200}) all.push_back(randomFloats(7, elements, exponents));
  for (const float special : {NAN, kInfinity, -kInfinity, kLargest, -kLargest, kDenormal, 0x1p-119F, 0x1.8p-123F}) {
    for (const float others : {1.0F, 0x1p-130F, 0.0F}) {
      std::vector<float> values = randomFloats(8, elements, 6);
      for (float& value : values) value *= others;
      for (std::size_t i = 0; i < elements; i += 7) values[i] = special;
      all.push_back(std::move(values));
    }
  }
  return all;
}

TEST(Quantized, BitsAreThoseOfTheReferenceByEveryInstructionSet) {
  for (const Isa& isa : runnableIsas()) {
    for (const Quantization kind : kKinds) {
      for (const std::size_t elements : kSizes) {
        for (const std::vector<float>& values : tables(elements)) {
          std::vector<std::byte> encoded(quantizedBytes(kind, elements));
          std::vector<float> lost(elements, 0.0F);
          isa.quantize(kind, values.data(), encoded.data(), lost.data(), elements);
          std::vector<float> decoded(elements);
          isa.dequantize(kind, encoded.data(), decoded.data(), elements);
          const std::vector<float> expected = reference(kind, values);
          ASSERT_EQ(bitsOf(decoded), bitsOf(expected)) << isa.name << " " << most(kind) << " " << elements;
          for (std::size_t i = 0; i < elements; ++i) {
            const float error = values[i] - expected[i];
            ASSERT_EQ(lost[i], std::isfinite(error) ? error : 0.0F) << isa.name << ": " << values[i];
          }
          std::vector<std::byte> withoutErrors(encoded.size());
          isa.quantize(kind, values.data(), withoutErrors.data(), nullptr, elements);
          ASSERT_EQ(withoutErrors, encoded);
        }
      }
    }
  }
}

TEST(Quantized, AnErrorIsAtMostHalfAScaleAndAddedToWhatWasLost) {
  for (const Quantization kind : kKinds) {
    const std::vector<float> values = randomFloats(3, kQuantizedBlock, 8);
    std::vector<std::byte> encoded(quantizedBytes(kind, values.size()));
    std::vector<float> lost(values.size(), 0.5F);
    quantize(kind, values.data(), encoded.data(), lost.data(), values.size());
    const float scale = scaleOf(kind, values);
    for (const float one : lost) EXPECT_LE(std::abs(one - 0.5F), scale * 0.5001F);
  }
}

TEST(Quantized, TakesTheBytesThatItPromises) {
  EXPECT_EQ(quantizedBytes(Quantization::Int8, 25 << 18), (25 << 18) + (25 << 12));
  EXPECT_EQ(quantizedBytes(Quantization::Int4, 25 << 18), (25 << 17) + (25 << 12));
  for (const Quantization kind : kKinds) {
    for (std::size_t elements = 0; elements < 600; ++elements) EXPECT_LE(quantizedBytes(kind, elements), 2 * elements);
  }
}

TEST(Quantized, ArraysMayBeMadeInEachOthersPlace) {
  for (const Quantization kind : kKinds) {
    for (const std::size_t elements : kSizes) {
      const std::vector<float> values = randomFloats(2, elements, 4);
      std::vector<std::byte> apart(quantizedBytes(kind, elements));
      quantize(kind, values.data(), apart.data(), nullptr, elements);
      std::vector<float> memory = values;
      auto* const first = reinterpret_cast<std::byte*>(memory.data());
      quantize(kind, memory.data(), first, nullptr, elements);
      EXPECT_TRUE(std::equal(apart.begin(), apart.end(), first));

      std::byte* const last = first + elements * sizeof(float) - apart.size();
      std::ranges::copy(apart, last);
      dequantize(kind, last, memory.data(), elements);
      EXPECT_EQ(bitsOf(memory), bitsOf(reference(kind, values)));
    }
  }
}

// The address sanitizer looks on.
TEST(Quantized, AnyBytesCanBeDecoded) {
  std::mt19937 random(11);
  for (const Quantization kind : kKinds) {
    for (int round = 0; round < 200; ++round) {
      const std::size_t elements = random() % 400;
      std::vector<std::byte> encoded(quantizedBytes(kind, elements));
      for (std::byte& byte : encoded) byte = static_cast<std::byte>(random());
      std::vector<std::vector<float>> decoded;
      for (const Isa& isa : runnableIsas()) {
        decoded.emplace_back(elements);
        isa.dequantize(kind, encoded.data(), decoded.back().data(), elements);
        EXPECT_EQ(bitsOf(decoded.back()), bitsOf(decoded.front()));
      }
    }
  }
}

}  // namespace
}  // namespace fairring
