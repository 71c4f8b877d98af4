// A whole rank in virtual time: the pipeline, the rails and the machine's exchange as they are, on a loop that the
// world steps. What ends it on an error stands in for the group's member (group/member.h), in the same order: it stops
// the exchanges, closes the channels, fails the calls, and tells its neighbours. On its loop only, but for the making.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "engine/pipeline.h"
#include "exchange/rails.h"
#include "exchange/shared_memory.h"
#include "simulation/simulated_channels.h"
#include "simulation/timed_body.h"

namespace fairring::simulation {

struct RankSettings {
  int rank;
  CoreCosts costs;
  std::uint64_t stagingBytes;
  EagerLimits limits;
  bool movesBytes;
};

class SimulatedRank {
 public:
  SimulatedRank(const Planner& planner, const RankSettings& settings, Post& post);
  SimulatedRank(const SimulatedRank&) = delete;
  SimulatedRank& operator=(const SimulatedRank&) = delete;
  ~SimulatedRank();

  void onLoop(const Loop::Task& task);
  void attach(int peer, SimulatedRank& other);  // a rank of its machine
  void closeChannels();
  void fail(const Error& error);
  bool isAtRest() const;
  std::set<int> missing() const;
  const ProgressFlags& flags() const { return sharedMemory_->flags(); }

  Core core;
  Loop loop;
  SimulatedChannels channels;
  std::unique_ptr<Rails> rails;
  std::unique_ptr<Pipeline> pipeline;
  Error error;  // the first
  bool dead = false;
  std::function<void(const Error&)> failed;  // the neighbours are to be told

  // When the world is to step it again.
  Time nextTurn = kNever;
  bool asleep = true;  // its last turn had nothing to do
  Time pausedUntil{0};

 private:
  const int rank_;
  std::shared_ptr<const TimedBody> body_;
  std::unique_ptr<SharedMemory> sharedMemory_;
};

}  // namespace fairring::simulation
