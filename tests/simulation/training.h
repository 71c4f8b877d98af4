// A training in virtual time, with a trouble planted in it, and what its ranks have recorded of it: each rank computes
// its buckets one after the other, has each all-reduced as soon as it is there, and begins the next step when all of
// them are back. So it is known who made it slow, and what it would take without.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "group/trace.h"
#include "simulation/world.h"

namespace fairring::simulation {

struct Trouble {
  enum class Kind {
    None,
    LateRank,     // it computes so many times longer
    LateMachine,  // all of its ranks do
    LateInput,    // a rank begins each step so many times a step's computing later
    SlowLink,     // of a machine, both ways; so many times slower
    SlowCore,     // of a rank: all that its engine does takes so many times longer
    LateBucket,   // a rank computes one bucket of each step so many times longer
    BusyCore,     // LateRank, whose threads stand in line for a processor meanwhile
    LossyLink,    // SlowLink, from and to which packets go again
    SmallStaging  // of all ranks; so many times smaller than a bucket
  };
  Kind kind = Kind::None;
  int who = 0;  // rank or machine
  double factor = 1;
  int bucket = 0;  // of LateBucket
};

struct Training {
  std::uint64_t seed = 0;
  int machines = 3;
  int ranks = 2;  // of each machine
  int steps = 12;
  int buckets = 4;
  std::uint64_t bucketBytes = 4 << 20;
  double bucketSeconds = 10e-3;   // of computing
  double unevenness = 0.05;       // by which share one bucket's computing may take longer than another's
  double bytesPerSecond = 125e6;  // of a machine's link
  Trouble trouble;
};

// Of its kind, with all else drawn.
Training drawnTraining(std::uint64_t seed, Trouble::Kind kind);

struct Trained {
  double stepSeconds = 0;
  std::vector<TraceFacts> facts;      // by rank, each machine by a clock of its own
  std::vector<TraceRecords> records;  // likewise
};

// Throws Failure, as the world does.
Trained carriedOut(const Training& training, const std::string& name);

}  // namespace fairring::simulation
