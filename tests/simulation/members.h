// Whole members of a group in virtual time: each rank is a process with a listener, which meets the others through a
// store (group/bootstrap.h), and whose group/member.h carries out its calls. All of that runs as it does in a job. A
// rank whose calls have ended leaves the group and ends its process, with an error as well as without.
//
// An error must name who is to blame: a rank that has died or stood still for too long, or one that the network had cut
// off. It must be there within the time that the heartbeats' timeout promises. One thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "group/rank_facts.h"
#include "plan/planner.h"
#include "processes.h"
#include "ranks.h"
#include "transport/challenge.h"

namespace fairring::testing {

class Members final : public Ranks {
 public:
  Members(const Script& script, const std::vector<Place>& places);
  ~Members() override;

  void at(Time time, simulation::EventQueue::Event event) override { processes_.at(time, std::move(event)); }
  bool step() override;
  Time now() const override { return processes_.now(); }
  Time timeOf(int rank) const override { return processes_.timeOf(rank); }
  std::uint64_t events() const override { return processes_.events(); }
  void submit(int rank, Call call, std::uint64_t number) override;
  void callsAreOver(int rank) override;
  void strike(const Fault& fault) override;
  bool isDead(int rank) const override;  // or stands still for ever
  bool hasFailed(int rank) const override;
  std::string wrongIn(int rank, const Error& error) const override;
  std::string unrestOf(int rank) const override;
  std::string whomWaitsFor(int rank) override;
  std::string broken() const override;

 private:
  class Store;
  struct Self;  // what a process has of the group

  Self& self(int rank) const { return *selves_[static_cast<std::size_t>(rank)]; }
  int world() const { return processes_.topology().world(); }
  Time timeout() const;
  void in(int rank, std::function<void(Self&)> task);
  void begin(Self& self);
  void meet(Self& self, Time pause);
  void join(Self& self);
  void give(Self& self, Call call);
  void failed(Self& self, const Error& error);
  Error lookForFailure(const Self& self);
  void leave(Self& self);
  void end(Self& self);
  void close(Self& self);
  RankFacts listen(Self& self, std::int64_t generation, const Secret& secret);
  bool isToBlame(int rank) const;
  bool isIdle(int rank) const;  // for longer than calls may take
  std::string wrongInVerdict(const std::vector<int>& named) const;

  const Script script_;
  std::map<std::string, std::string> stored_;
  bool isStoreLost_ = false;
  std::unique_ptr<Store> store_;
  Processes processes_;
  std::vector<std::unique_ptr<Self>> selves_;  // by rank
  bool isOver_ = false;
};

}  // namespace fairring::testing
