// Whole members of a group in virtual time: each rank is a process with a listener, which meets the others through a
// store (group/bootstrap.h), and whose group/member.h carries out its calls. All of that runs as it does in a job, on
// two loops for each rank, that of the slices and that of the heartbeats; under it lie the sockets of sockets.h. A rank
// whose calls have ended leaves the group and ends its process, with an error as well as without.
//
// An error must name who is to blame: a rank that has died or stood still for too long, or one that the network had cut
// off. It must be there within the time that the heartbeats' timeout promises. One thread.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "group/rank_facts.h"
#include "plan/planner.h"
#include "ranks.h"
#include "simulation/network.h"
#include "sockets.h"
#include "transport/challenge.h"

namespace fairring::testing {

class Members final : public Ranks {
 public:
  Members(const Script& script, const std::vector<Place>& places);
  ~Members() override;

  void at(Time time, simulation::EventQueue::Event event) override { events_.at(time, std::move(event)); }
  bool step() override;
  Time now() const override { return events_.now(); }
  Time timeOf(int rank) const override;
  std::uint64_t events() const override { return events_.happened(); }
  void submit(int rank, Call call, std::uint64_t number) override;
  void callsAreOver(int rank) override;
  void strike(const Fault& fault) override;
  bool isDead(int rank) const override;
  bool hasFailed(int rank) const override;
  std::string wrongIn(int rank, const Error& error) const override;
  std::string unrestOf(int rank) const override;
  std::string whomWaitsFor(int rank) override;
  std::string broken() const override { return broken_; }

 private:
  class Store;
  struct Thread;
  struct Process;

  Process& process(int rank) const { return *processes_[static_cast<std::size_t>(rank)]; }
  int machineOf(int rank) const { return topology_.machineOf(rank); }
  Time timeout() const;
  // In the main thread of its process, once that does not stand still; never if it has ended.
  void in(int rank, std::function<void(Process&)> task);
  void begin(Process& self);
  void meet(Process& self, Time pause);
  void join(Process& self);
  void give(Process& self, Call call);
  void failed(Process& self, const Error& error);
  void leave(Process& self);
  void end(Process& self);
  void close(Process& self);
  RankFacts listen(Process& self, std::int64_t generation, const Secret& secret);

  void wake(int rank);
  void schedule(Process& self, Thread& thread, Time when);
  void turn(Process& self, Thread& thread, Time when);
  void scheduleTimers(Process& self);

  bool isToBlame(int rank) const;
  bool areCutOff(int one, int other) const;

  const Script script_;
  const std::vector<Place> places_;  // by rank
  const Topology topology_;
  simulation::EventQueue events_;
  simulation::Network network_;
  Surroundings surroundings_;
  Sockets sockets_;
  std::unique_ptr<Store> store_;
  std::vector<std::unique_ptr<Process>> processes_;
  Process* acting_ = nullptr;
  std::set<int> toBlame_;                 // have died, or stood still for long
  std::set<std::pair<int, int>> cutOff_;  // machines
  bool isStoreLost_ = false;
  Time promised_{0};  // until then all errors are there
  bool isOver_ = false;
  std::string broken_;
};

}  // namespace fairring::testing
