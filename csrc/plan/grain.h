// The grain of slices: cuts and the areas of staging fall on its multiples, so that none parts an element of any dtype
// or shares a cache line. And the arithmetic of multiples. Pure: any thread.
#pragma once

#include <cstdint>

namespace fairring {

inline constexpr std::uint64_t kGrainBytes = 64;
// Where elements cross between sites in blocks, up to so many grains stay together. Every slice that is chosen where
// there are several sites has room for such cuts.
inline constexpr std::uint64_t kMostGrainsTogether = 8;

constexpr std::uint64_t ceilOf(std::uint64_t value, std::uint64_t divisor) { return (value + divisor - 1) / divisor; }
constexpr std::uint64_t roundUp(std::uint64_t value, std::uint64_t unit) { return ceilOf(value, unit) * unit; }

}  // namespace fairring
