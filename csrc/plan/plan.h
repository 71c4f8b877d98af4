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
  // These are for collectives with a root. One of a rail's owners stands for the root: the one whose group of the level
  // below contains it. Groups without the root do nothing in the first two.
  Scatter,  // afterwards each owner holds its shard of what the root's had
  Gather,   // afterwards the root's owner holds all shards of the rail
  Relay,    // afterwards each owner holds all of what the root's had: it is passed on from one to the next
  // Each rank has a cell for each other: afterwards each owner holds the cells for the ranks whose blocks its shard
  // has.
  AllToAll,
};

bool reduces(Verb verb);
bool scatters(Verb verb);  // in shards, and sends from where the shards of a later gathering step arrive
bool gathers(Verb verb);

// The ways in which collectives treat their ranks' data.
enum class Pattern : std::uint8_t {
  AllReduce,
  Reduce,
  Broadcast,
  // The slices of these have a block for each rank (blocks.h).
  ReduceScatter,
  AllGather,
  Scatter,
  Gather,
  AllToAll,
};

bool hasRoot(Pattern pattern);
bool isByRank(Pattern pattern);  // has such blocks

struct Step {
  Verb verb;
  int level;
  int passedOnTo = 0;  // a Relay: to how many each owner passes it on
  auto operator<=>(const Step&) const = default;
};

using Plan = std::vector<Step>;
// "RS0 RS1 AG1 AG0", "RS0 AR1 AG0"; of blocks "RS0 RS1 ST0", "LD0 AG1 AG0"; with a root "SC0 RL1/1 AG0", "SC0 SC1 ST0",
// "LD0 GA1 GA0", "RS0 RS1 GA1 GA0"
std::string describe(const Plan& plan);

// Reduce-scatter down the levels, all-gather back up. With `oneShotTop` the topmost level is one all-reduce step
// instead.
Plan hierarchicalPlan(const std::vector<int>& levels, bool oneShotTop);

// The one plan of a pattern, all-reduces and broadcasts aside. Of blocks each rank's own is what it ends, or begins,
// with.
Plan planOf(Pattern pattern, const std::vector<int>& levels);

// Down to the topmost level in shards, there from one to the next, and back up. On one machine without that.
Plan broadcastPlan(const std::vector<int>& levels, int passedOnTo);

}  // namespace fairring
