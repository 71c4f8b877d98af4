// The steps that a slice takes: a verb and a level each, down the levels of the topology and back up. Immutable data.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace fairring {

enum class Verb : std::uint8_t {
  ReduceScatter,  // afterwards each owner of a rail holds the sum of its shard
  AllGather,      // afterwards each owner holds all shards of the rail
  AllReduce,      // both in one step: everyone sends all of the rail to everyone, and all sum it
  Load,           // level 0: this rank's own block is copied from its tensor into its image
  Store,          // level 0: this rank's own block is copied from its image into its tensor
};

bool reduces(Verb verb);

struct Step {
  Verb verb;
  int level;
  int shards = 0;  // that a rail is cut into, fewer than it has owners, who take turns; 0: one for each owner
  auto operator<=>(const Step&) const = default;
};

using Plan = std::vector<Step>;
// "RS0 RS1 AG1 AG0", "RS0 AR1 AG0"; with few owners "RS0 RS1/4 AG1/4 AG0"; of blocks "RS0 RS1 ST0", "LD0 AG1 AG0"
std::string describe(const Plan& plan);

struct FewShards {  // at this level rails have only so many; 0: all of them
  int level = 0;
  int shards = 0;
};

// Reduce-scatter down the levels, all-gather back up. With `oneShotTop` the topmost level is one all-reduce step
// instead, unless that is level 0, which has none.
Plan hierarchicalPlan(const std::vector<int>& levels, bool oneShotTop, const FewShards& few = {});

// The two halves of that, of slices that have a block for each rank (blocks.h): each rank's own block is what it
// ends, or begins, with.
Plan reduceScatterPlan(const std::vector<int>& levels);
Plan allGatherPlan(const std::vector<int>& levels);

}  // namespace fairring
