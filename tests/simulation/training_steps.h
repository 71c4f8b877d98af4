// Steps of a training in virtual time: each rank computes its buckets one after the other, has each all-reduced as soon
// as its gradients are there, and begins the next step when all of them are back. What is computed takes time but no
// core of the engine's: a device has it, or other cores.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "simulation/world.h"

namespace fairring::simulation {

struct TrainingSteps {
  int steps = 1;
  std::vector<std::uint64_t> bucketBytes;  // in the order in which their gradients are there
  // How long after it began the step a rank has the gradients of a bucket. With the last one its computing ends.
  std::function<Time(int rank, int step, int bucket)> computed;
};

// When the last rank was through with each step. All ranks begin the first one then.
// Throws Failure(Usage) where a rank is never through.
std::vector<Time> trained(World& world, const TrainingSteps& training, Time begin);

}  // namespace fairring::simulation
