// The time that calls or training steps take on a hypothetical cluster: the answers of `fairring plan --simulate`, as
// Python dicts. Callers hold the GIL, which is released meanwhile. Python's signals are checked now and then, so that
// Ctrl-C ends a long simulation.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <vector>

#include "backend/inspection.h"

namespace fairring {

struct SimulationQuestion {
  PlanQuestion cluster;           // its bytes: of the call
  double linkBytesPerSecond = 0;  // of each machine, each way, headers included
  double latencySeconds = 0;      // from machine to machine
  double oversubscription = 1;    // of the spine between them
  double coreBytesPerSecond = 0;  // that one core sends or receives
  int cores = 0;                  // that all ranks share; 0: each has its own
  std::string collective;         // as `fairring bench` names it
  int times = 1;                  // calls, or steps
  // A training step instead of a call: the bytes of its buckets, in the order in which gradients are computed.
  std::vector<std::uint64_t> buckets;
  double forwardSeconds = 0;
  double backwardSeconds = 0;
};

// Throws Failure, as the planner does.
pybind11::dict simulate(const SimulationQuestion& question);
pybind11::dict simulatedHardware();  // the defaults of a question

}  // namespace fairring
