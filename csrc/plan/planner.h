// Which steps a slice takes, how large slices are, and what each is expected to cost. Pure arithmetic: the same answer
// on all ranks from the same topology and settings, never from a measurement in this run. docs/algorithms.md derives
// the rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plan/blocks.h"
#include "plan/grain.h"
#include "plan/layout.h"
#include "plan/load.h"
#include "plan/plan.h"
#include "plan/topology.h"

namespace fairring {

struct CostRow {                // of one level's transport; sources in docs/algorithms.md
  double latencySeconds;        // alpha: one step, one message
  double perMessageSeconds;     // o: handling one more message
  double bytesPerSecond;        // beta: one rank's share of the level, each way
  double summedBytesPerSecond;  // gamma: the kernel's speed, bytes of input
};

struct PlannerSettings {
  std::uint64_t totalMemoryBytes;  // FAIRRING_TOTAL_MEMORY: staging of one rank and group
  std::uint64_t sliceBytes;        // FAIRRING_SLICE_SIZE: upper bound of a slice
  std::vector<CostRow> rows;       // by level, groups of machines aside
  std::uint64_t sliceGrainBytes =
      kGrainBytes;         // slices are multiples of it, but for a call's last, if the memory allows
  bool coreCopies = true;  // the core that handles a rank's messages also carries out level 0; false: a device does
};

// The grain with which the ranks of every machine have equal shards of a slice.
std::uint64_t equalShardsGrainBytes(const Topology& topology);

struct PlanChoice {
  Plan plan;
  std::uint64_t sliceBytes;         // of every slice but the last, a multiple of the grain
  std::uint64_t stagingBytes;       // of the ring, that its slices use in turn
  std::uint64_t sliceStagingBytes;  // of one slice, on the rank that needs most
};

// How the ranks of a sparse call learn which rows there are, and what their values travel as.
enum class KeyForm {
  Lists,       // each rank's keys; then rows without indices, each rank's only where it has them
  BitsByRank,  // the same with a bit for each possible row, of each rank
  BitsOfAll,   // a bit for each possible row that somebody has; then these rows as a block, each rank's with zeros
};

struct RowSpace {  // of a sparse call: the rows that its tensor could have
  std::uint64_t rows;
  std::uint64_t rowBytes;

  std::uint64_t words() const { return rows / 64 + (rows % 64 == 0 ? 0 : 1); }  // of a bit for each
  std::uint64_t bitBytes() const { return 8 * words(); }
  std::uint64_t keyBytes() const { return rows <= 1ULL << 32 ? 4 : 8; }
};

struct Forecast {  // of one call by one plan, at the slice size that suits it best
  Plan plan;
  std::uint64_t sliceBytes;
  std::uint64_t slices;
  std::uint64_t stagingBytes;  // of one slice, on the rank that needs most
  double seconds;
  std::vector<StepWork> levels;  // all that the busiest rank does at each level
};

class Planner {
 public:
  static constexpr std::uint64_t kStagingGrainBytes = 4096;  // staging is given out in whole pages
  static constexpr int kSlicesInFlight = 4;  // that staging should hold; the ancestor's measured sweet spot
  // Staging of calls that stay on one machine: images that are used in turn stay in the processor's cache from when
  // they are filled until they are read.
  static constexpr std::uint64_t kCachedStagingBytes = 2 << 20;

  // Throws Failure(Configuration), with the numbers, when the memory holds no slice of the minimum size.
  Planner(Topology topology, PlannerSettings settings);

  // The plan and slice size of an all-reduce of so many bytes, in shards at level 0.
  PlanChoice choose(std::uint64_t bytes) const;

  // The choice for any collective of so many bytes. If it has blocks, one for each rank, they are those of the largest
  // block; a slice has the same stretch of every block, and sliceBytes is how many bytes of one.
  PlanChoice choose(Pattern pattern, std::uint64_t bytes) const;
  // The choice for an all-to-all whose largest cell has so many bytes. A slice has the same stretch of every cell.
  PlanChoice chooseAllToAll(std::uint64_t cellBytes) const;
  const Blocks& blocks() const { return blocks_; }

  // The form of a sparse call's keys, once the ranks have told each other how many rows each has.
  KeyForm keyForm(const RowSpace& space, const std::vector<std::uint64_t>& rowsByRank) const;

  // Like choose(), for a sparse call whose contributions travel packed, whose rows have so many bytes in all, and of
  // which no member of the topmost level's groups has more than `most`. Slices hold contributions as well as their
  // image, and so are smaller.
  PlanChoice chooseSparse(std::uint64_t bytes, std::uint64_t most) const;

  // Expected seconds of one call by one of these plans, all its slices, the busiest rank's.
  double predictSeconds(const Plan& plan, std::uint64_t bytes, std::uint64_t sliceBytes) const;

  // Every plan that the memory allows, the best first: what choose() takes.
  std::vector<Forecast> forecast(std::uint64_t bytes) const;

  // A slice by one of these plans, as one rank sees it.
  Layout layoutOf(const Plan& plan, int rank, std::uint64_t bytes) const;

  std::set<int> peersOf(int rank) const;  // above the machine, in slices by any of the plans

  const Topology& topology() const { return topology_; }
  // The topology whose levels every plan has that has no choice of them: the one in groups where all are.
  const Topology& leveled() const { return topologyOf(topology_.onlyInGroups()); }
  const std::vector<int>& levels() const { return levels_; }  // that some plan has a step at

 private:
  struct Candidate {
    Plan plan;
    bool grouped;
    std::vector<Load> loads;
    std::uint64_t largestSliceBytes = 0;
    std::uint64_t receivedBlocks = 0;  // of slices of blocks: as Blocks has it
  };
  struct Sized {
    std::uint64_t sliceBytes;
    double seconds;
  };
  struct LevelSeconds {     // of one slice
    double slowest = 0;     // of the busiest rank
    double passedOn = 0;    // from when the first rank has it until the last one has
    double throughput = 0;  // from one slice to the next, where several are in flight
    double core = 0;        // of that rank's core, which all levels share
  };

  void addCandidates(bool grouped);
  Candidate ofBlocks(Pattern pattern, std::vector<Load> loads) const;  // on leveled(), as the next
  std::vector<Candidate> ofBroadcasts(const std::vector<Load>& loads) const;
  PlanChoice chooseOfBlocks(const Candidate& candidate, std::uint64_t blockBytes) const;
  const Candidate* oneShotOf(std::uint64_t bytes) const;
  PlanChoice best(const std::vector<Candidate>& candidates, std::uint64_t bytes) const;
  const Candidate& candidateOf(const Plan& plan) const;
  std::uint64_t stagingFor(const Plan& plan) const;  // that its slices use in turn
  const Topology& topologyOf(bool grouped) const { return grouped && grouped_ ? *grouped_ : topology_; }
  std::uint64_t largestSliceBytes(const Candidate& candidate) const;  // that the memory allows; 0: none
  // Groups of machines share the network of the rails, with their row and the time of a rank's card.
  static int networkOf(const Candidate& candidate, int level) { return candidate.grouped ? std::min(level, 1) : level; }
  static std::uint64_t stagingOf(const Candidate& candidate, std::uint64_t sliceBytes);  // in whole pages
  struct Topmost {  // what a sparse call's topmost level carries, in bytes
    double all;     // rows
    double most;    // of them, of the member that has most
  };

  double sparseSeconds(const Candidate& candidate, const Topmost& carried) const;  // of the topmost level
  std::pair<const Candidate*, double> bestSparse(const Topmost& carried) const;
  // Once rows of so many ranks are united by that.
  Topmost topmost(const std::vector<std::uint64_t>& rowsByRank, const std::function<double(double, double)>& united,
                  const RowSpace& space) const;
  std::uint64_t leastCutsOf(const Candidate& candidate, std::uint64_t bytes) const;
  bool paysInGroups(std::uint64_t bytes) const;
  std::uint64_t cutsOf(const Candidate& candidate, std::uint64_t bytes) const;
  Sized bestSize(const Candidate& candidate, std::uint64_t bytes) const;
  std::uint64_t fewestSlices(const Candidate& candidate, std::uint64_t bytes, std::uint64_t usual) const;
  double predict(const Candidate& candidate, std::uint64_t bytes, std::uint64_t sliceBytes) const;
  Forecast forecastOf(const Candidate& candidate, std::uint64_t bytes) const;
  std::vector<LevelSeconds> levelSeconds(const Candidate& candidate, std::uint64_t sliceBytes) const;

  Topology topology_;
  std::optional<Topology> grouped_;  // the same with groups of machines as a level, where there are any
  std::vector<int> levels_;
  PlannerSettings settings_;
  std::vector<Candidate> candidates_;
  Blocks blocks_;
  std::map<Pattern, std::vector<Candidate>> others_;  // other collectives, and small all-reduces within a machine
};

// Memory that a slice takes of its rank's staging: the slice's image first, then, for each step that receives
// contributions, one area per rail and peer. receiveOffset gives where those of a step begin.
// Areas stand in the order of rails, then of owners (self left out). In a ReduceScatter an area has the bytes of this
// rank's own shard, in an AllReduce those of the whole rail. Level 0 needs none.
std::uint64_t stagingBytes(const Plan& plan, const Layout& layout);
std::uint64_t receiveOffset(const Plan& plan, const Layout& layout, std::size_t step);

// Upper bound of stagingBytes over all ranks, for every slice of at most so many bytes: what all ranks must agree on.
// It also holds if up to so many grains stay together.
std::uint64_t worstStagingBytes(const Plan& plan, const std::vector<Load>& loads, std::uint64_t sliceBytes,
                                std::uint64_t grainsTogether = 1);

}  // namespace fairring
