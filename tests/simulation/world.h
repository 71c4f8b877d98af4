// Machines, links and ranks in virtual time: a world. It makes ranks that run the real engine, gives each turn of a
// loop to the rank whose time has come, and lets ranks die, pause and be slow, and links break. Nothing depends on the
// real time or on addresses of memory, so the same settings give the same course, event by event.
//
// What a rank does within a turn others can see as soon as the turn is over in real time, which in virtual time may be
// some tens of microseconds early: a turn is as short as a piece of a job. One thread.
#pragma once

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "plan/planner.h"
#include "simulation/network.h"
#include "simulation/simulated_rank.h"

namespace fairring::simulation {

struct WorldSettings {
  std::vector<Place> places;  // by rank
  PlannerSettings planner;
  Costs costs = {};
  GroupingFrom grouping = {};
  EagerLimits limits = {};
  bool movesBytes = true;                     // and sums them; else only time passes, and no tensor is looked at
  std::uint64_t copiedBytes = 512 << 10;      // of a message that is copied as it is sent, at most
  std::optional<std::uint64_t> shuffle = {};  // the seed of delays at random, of messages and of ranks
};

class World {
 public:
  static constexpr std::chrono::seconds kSilence{30};  // after which a rank is given up

  // Throws Failure, as the planner does, or where the process has no descriptors or memory for so many ranks.
  explicit World(const WorldSettings& settings);

  void submit(int rank, Call call, std::uint64_t signature);
  void post(int rank, std::function<void(SimulatedRank&)> task);  // to its loop, where it runs if the rank lives then
  // The next event. False: nothing will ever happen again.
  bool step();
  void finish();  // all events

  void kill(int rank);
  void pause(int rank, Time until);
  void slow(int rank, double factor);  // its thread
  // Nothing arrives from one machine at the other until then; kNever: its ranks give one another up after kSilence.
  void cut(int from, int to, Time until);
  // What lies between the rails and the network may be other than the simulated channels (Rails::use). Who put
  // it there is told when a rank's turn is over, and when its process has died, and says when a rank has something to
  // do.
  std::function<void(int rank)> turnIsOver;
  std::function<void(int rank)> died;
  void wake(int rank) { notify(rank); }

  void at(Time time, EventQueue::Event event) { events_.at(time, std::move(event)); }

  const Planner& planner() const { return planner_; }
  Time now() const { return events_.now(); }
  Time timeOf(int rank) const { return ranks_[static_cast<std::size_t>(rank)]->core.time(); }
  std::uint64_t events() const { return events_.happened(); }
  SimulatedRank& rank(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  int size() const { return planner_.topology().world(); }
  Network& network() { return network_; }
  Post& post() { return post_; }
  std::set<int> neighbours(int rank) const;

 private:
  Time present() const;  // of who acts
  Time someTime(double mostSeconds);
  void makeRank(int rank, const WorldSettings& settings);
  void introduce(int rank);
  void notify(int rank);
  void schedule(int rank, Time when);
  void turn(int rank, Time when);
  void ringDoorbells(int rank);
  void tell(int rank, const Error& error, Time when);

  const CoreCosts costs_;
  EventQueue events_;
  Planner planner_;
  Network network_;
  Post post_;
  std::optional<std::mt19937_64> random_;
  std::vector<std::unique_ptr<SimulatedRank>> ranks_;
  Core* acting_ = nullptr;
};

}  // namespace fairring::simulation
