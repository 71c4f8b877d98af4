// The load of a rank: its part of a slice at each level, as numbers that follow from the topology alone. They are how
// many rails it owns, with how many owners each. From these come upper bounds of its bytes that hold for every slice up
// to a size, where layout.h gives the exact ranges of one size. Immutable.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <vector>

#include "plan/plan.h"
#include "plan/topology.h"

namespace fairring {

struct StepWork {  // of one rank, in one step of a slice or in several
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;        // sent, and as many received; at level 0 moved between the tensor and staging
  std::uint64_t summedBytes = 0;  // of input

  StepWork& operator+=(const StepWork& other);
};

struct LevelLoad {
  std::uint64_t rails = 1;
  std::uint64_t owners = 1;
  auto operator<=>(const LevelLoad&) const = default;
};

struct Load {
  std::array<LevelLoad, Topology::kLevels> levels;

  // At most this many bytes of the slice are still this rank's when the step of that level begins. Never less for a
  // larger slice.
  std::uint64_t heldBytes(int level, std::uint64_t sliceBytes) const;
  StepWork work(const Step& step, std::uint64_t sliceBytes) const;

  auto operator<=>(const Load&) const = default;
};

// The loads of all ranks, each different one once.
std::vector<Load> loadsOf(const Topology& topology);

}  // namespace fairring
