// How long calls take on a cluster that nobody has: each rank makes its calls in a row, and waits for each. Only time
// passes; the tensors are one piece of memory that nobody looks at.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"
#include "simulation/world.h"

namespace fairring::simulation {

struct Cluster {
  std::vector<Place> places;
  PlannerSettings planner;
  // NOLINTBEGIN(readability-redundant-member-init): they may be left out of an initializer that names members
  GroupingFrom grouping = {};
  Costs costs = {};
  bool sharedMemory = false;  // the real exchange of level 0, on some hundred ranks at most
  // NOLINTEND(readability-redundant-member-init)
};

struct Experiment {
  Cluster cluster;
  Pattern pattern = Pattern::AllReduce;  // with rank 0 as the root, where it has one
  std::uint64_t bytes = 0;               // of the one tensor, or of all blocks of a rank together
  int calls = 1;                         // in a row
};

struct Outcome {                    // of a call
  double seconds = 0;               // by the slowest rank, in the mean
  double linkBytes = 0;             // that leave the busiest machine
  std::size_t mostConnections = 0;  // of a rank, to other machines
};

// After a call that is not counted. Throws Failure, as the planner does, or where there is no room for so many ranks.
Outcome carriedOut(const Experiment& experiment);

}  // namespace fairring::simulation
