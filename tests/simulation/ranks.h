// The ranks of a trial: the engine alone (engine_ranks.h), or whole members of a group (members.h). One thread.
#pragma once

#include <cstdint>
#include <string>

#include "engine/call.h"
#include "script.h"
#include "simulation/event_queue.h"

namespace fairring::testing {

class Ranks {
 public:
  using Time = simulation::Time;

  Ranks() = default;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  virtual ~Ranks() = default;

  virtual void at(Time time, simulation::EventQueue::Event event) = 0;
  virtual bool step() = 0;  // the next event; false: nothing will happen any more
  virtual Time now() const = 0;
  virtual Time timeOf(int rank) const = 0;
  virtual std::uint64_t events() const = 0;

  virtual void submit(int rank, Call call, std::uint64_t number) = 0;
  virtual void callsAreOver(int) {}  // of that rank: all that it will make have ended
  virtual void strike(const Fault& fault) = 0;

  virtual bool isDead(int rank) const = 0;
  virtual bool hasFailed(int rank) const = 0;
  // What is wrong with how a call of this rank ended, or with how the rank is when all calls have ended. Empty:
  // nothing.
  virtual std::string wrongIn(int rank, const Error& error) const = 0;
  virtual std::string unrestOf(int rank) const = 0;
  virtual std::string whomWaitsFor(int rank) = 0;
  virtual std::string broken() const = 0;  // what did not hold so far; empty: all did
};

}  // namespace fairring::testing
