// How long calls take on a cluster that nobody has: each rank makes them in a row, and waits for each. Only time
// passes; the tensors are one piece of memory that nobody looks at.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"
#include "simulation/world.h"

namespace fairring::simulation {

struct Experiment {
  std::vector<Place> places;
  PlannerSettings planner;
  Costs costs;
  Pattern pattern = Pattern::AllReduce;  // or ReduceScatter, AllGather
  std::uint64_t bytes = 0;               // of the all-reduced tensor, or of all blocks together
  int calls = 1;                         // in a row
  bool sharedMemory = false;             // the real exchange of level 0, on some hundred ranks at most
};

struct Outcome {
  double seconds = 0;               // of a call, by the slowest rank
  double messages = 0;              // of a call, that a rank gives to its channels, in the mean
  double linkBytes = 0;             // of a call, that leave the busiest machine
  std::size_t mostConnections = 0;  // of a rank, to other machines
  std::uint64_t events = 0;         // in all
};

// Throws Failure, as the planner does, or where there is no room for so many ranks.
Outcome carriedOut(const Experiment& experiment);

}  // namespace fairring::simulation
