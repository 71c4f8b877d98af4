#include "kernels/bf16.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/control.h"

// One instruction set suffices: data between sites arrives more slowly than these loops run.
#define FAIRRING_ISA between_sites
#include "kernels/elements.h"

namespace fairring {

namespace {

using between_sites::Brain;

// Arrays that share memory are read a block ahead of where they are written.
constexpr std::size_t kBlock = 1024;

template <class Body>
void inBlocks(std::size_t elements, const Body& body) {
  const StandardFloatingPoint standard;
  for (std::size_t begin = 0; begin < elements; begin += kBlock) body(begin, std::min(kBlock, elements - begin));
}

// NaN and infinity are not kept as residuals: they would come back in every later sum.
float finiteOr0(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const bool isFinite = (bits & 0x7f800000U) != 0x7f800000U;
  return __builtin_bit_cast(float, between_sites::select(isFinite, bits, 0));
}

}  // namespace

void roundToBf16(const float* values, Bf16* rounded, float* lost, std::size_t elements) {
  inBlocks(elements, [&](std::size_t begin, std::size_t count) {
    std::array<Bf16, kBlock> block;
    const float* from = values + begin;
    for (std::size_t i = 0; i < count; ++i) block[i] = Brain::narrow(from[i]);
    if (lost != nullptr) {
      float* here = lost + begin;
      for (std::size_t i = 0; i < count; ++i) here[i] += finiteOr0(from[i] - Brain::widen(block[i]));
    }
    std::memcpy(rounded + begin, block.data(), count * sizeof(Bf16));
  });
}

void addLost(float* values, float* lost, std::size_t elements) {
  inBlocks(elements, [&](std::size_t begin, std::size_t count) {
    for (std::size_t i = begin; i < begin + count; ++i) values[i] += lost[i];
  });
  std::fill_n(lost, elements, 0.0F);
}

double magnitudeOf(const float* values, std::size_t elements) {
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> lanes{};
  inBlocks(elements, [&](std::size_t begin, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) lanes[i % kLanes] += std::abs(finiteOr0(values[begin + i]));
  });
  return std::accumulate(lanes.begin(), lanes.end(), 0.0);
}

void widen(const Bf16* narrow, float* wide, std::size_t elements) {
  inBlocks(elements, [&](std::size_t begin, std::size_t count) {
    std::array<Bf16, kBlock> block;
    std::memcpy(block.data(), narrow + begin, count * sizeof(Bf16));
    for (std::size_t i = 0; i < count; ++i) wide[begin + i] = Brain::widen(block[i]);
  });
}

}  // namespace fairring
