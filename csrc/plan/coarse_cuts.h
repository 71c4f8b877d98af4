// Slices whose cuts fall on multiples of several grains, because their elements cross between sites in blocks. Such a
// slice is laid out as one whose bytes are units of several bytes. Pure: any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/layout.h"
#include "plan/planner.h"

namespace fairring {

// The most grains that may stay together, and so the most bytes of a unit. Every slice that is chosen where there are
// several sites has room for such cuts.
inline constexpr std::uint64_t kMostGrainsTogether = 8;

// A slice of so many bytes, from the layout of its units.
Layout inBytes(const Layout& units, std::uint64_t unitBytes, std::uint64_t bytes);

// As worstStagingBytes(), whatever grains stay together.
std::uint64_t worstStagingOfCoarseCuts(const Plan& plan, const std::vector<Load>& loads, std::uint64_t sliceBytes);

}  // namespace fairring
