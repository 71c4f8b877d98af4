// Processes in virtual time, one for each rank: the two loops that a process has, that of the slices and that of the
// heartbeats, stepped by hand over the sockets of sockets.h, the members of groups on them, and what goes wrong with
// all of that. What else a process does is its user's (members.h, rounds.h). One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/loop_thread.h"
#include "group/member.h"
#include "group/rank_facts.h"
#include "group/settings.h"
#include "plan/topology.h"
#include "script.h"
#include "simulation/network.h"
#include "sockets.h"
#include "transport/acceptor.h"

namespace fairring::testing {

std::vector<int> ranksNamedIn(const std::string& error);

class Processes {
 public:
  using Time = simulation::Time;
  static constexpr std::chrono::seconds kLeaveTimeout{30};  // group/group.h waits as long

  Processes(const Script& script, const std::vector<Place>& places);
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  void at(Time time, simulation::EventQueue::Event event) { events_.at(time, std::move(event)); }
  bool step();  // the next event; false: none is left
  Time now() const { return events_.now(); }
  Time timeOf(int rank) const;
  std::uint64_t events() const { return events_.happened(); }
  Time someTime() { return surroundings_.someTime(); }
  std::uint64_t number(std::uint64_t below) { return surroundings_.number(below); }

  // In the main thread of its process, once that does not stand still; never if it has ended.
  void in(int rank, std::function<void()> task);
  // By somebody who looks at it from outside, at once, whatever has become of it.
  void inspect(int rank, const std::function<void()>& task);
  Threads threads(int rank);
  Sockets& sockets() { return sockets_; }
  const Topology& topology() const { return topology_; }
  std::unique_ptr<Acceptor> listen(int rank);
  RankFacts factsOf(int rank, const Acceptor& listener) const;
  // From the main thread of the process. The script says what the settings leave out: memory, slices, lanes,
  // heartbeats.
  std::shared_ptr<Member> open(int rank, const std::shared_ptr<GroupEndpoint>& endpoint, GroupSettings settings,
                               const std::vector<RankFacts>& facts);
  void submit(int rank, const std::shared_ptr<Member>& member, Call call);
  // left: in the main thread, once the member has left, and again after kLeaveTimeout.
  void leave(int rank, const std::shared_ptr<Member>& member, const std::function<void()>& left);
  void end(int rank);  // in good order
  void kill(int rank);

  void strike(const Fault& fault);
  bool isDead(int rank) const;
  bool hasEnded(int rank) const;                                      // in good order
  bool isGone(int rank) const;                                        // one or the other
  Time standsStillFor(int rank) const;                                // from now on
  bool isToBlame(int rank) const { return toBlame_.contains(rank); }  // it has died, or stood still for long
  bool areCutOff(int one, int other) const;                           // their machines were, for long
  Time lastFaultEnds() const { return lastFaultEnds_; }
  bool isStrangerInside() const { return sockets_.isStrangerInside(); }
  void lateUntil(Time time) { lastFaultEnds_ = std::max(lastFaultEnds_, time); }

 private:
  struct Thread;
  struct Process;

  Process& process(int rank) const { return *processes_[static_cast<std::size_t>(rank)]; }
  void wake(int rank);
  void schedule(Process& self, Thread& thread, Time when);
  void turn(Process& self, Thread& thread, Time when);
  void freeze(Process& self, Time lasts);
  void leap(Process& self, Time by);
  void starve(Process& self, std::uint64_t allocation);
  void scheduleTimers(Process& self);

  const Script script_;
  const std::vector<Place> places_;  // by rank
  const Topology topology_;
  simulation::EventQueue events_;
  simulation::Network network_;
  Surroundings surroundings_;
  Sockets sockets_;
  std::vector<std::unique_ptr<Process>> processes_;
  Process* acting_ = nullptr;
  std::set<int> toBlame_;
  std::set<std::pair<int, int>> cutOff_;  // machines
  Time lastFaultEnds_{0};
};

}  // namespace fairring::testing
