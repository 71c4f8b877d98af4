// The wait for all ranks of a group. It looks for them in the job's store (bootstrap.h) until all have published their
// facts, some have died, the time is over, or somebody breaks it off. It polls: a wait in the store could not be broken
// off, and would notice neither a closed generation nor a rank that has died, whose facts are there.
//
// Any thread. Several may wait, each with a patience of its own; between looks they let each other through. The steps
// of BootstrapSteps are called by one of them at a time. Once all have met, the facts change no more.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "group/bootstrap.h"
#include "group/key_value.h"

namespace fairring {

class Rendezvous {
 public:
  // A connection of its own to the store, because a wait on a store blocks all others on that store's connection.
  using Connect = std::function<std::unique_ptr<KeyValue>()>;

  struct Patience {
    std::chrono::milliseconds timeout;  // for ranks that have not come; 0: none
    // For ranks that have died, once all have come: they may be started again.
    std::chrono::nanoseconds forDead = std::chrono::nanoseconds::max();
  };

  // Publishes this rank's facts, and waits for nobody.
  Rendezvous(KeyValue& store, Connect connect, BootstrapOptions options, BootstrapSteps steps, Departures& departures);

  // The facts of all ranks, by rank. Throws Failure: Timeout and PeerDied name the ranks; PeerLeft if the group has
  // failed elsewhere; the error that broke the wait off; what checkFacts throws. Throws what the store throws.
  const std::vector<RankFacts>& meet(const Patience& patience);
  bool hasMet();
  void breakOff(const Error& error);  // the waits, those to come too; the first error counts
  std::vector<int> absent() const;    // the ranks that are waited for, as the last look at them had it
  void leave();                       // in good order; no effect if a rank was waited for in vain

  std::int64_t generation() const { return bootstrap_.generation(); }
  std::string key(const std::string& name) const { return bootstrap_.key(name); }
  std::string errorKey() const { return bootstrap_.errorKey(); }
  std::string allMetKey() const { return bootstrap_.allMetKey(); }

 private:
  using Clock = std::chrono::steady_clock;

  void note(const std::vector<int>& absent);
  void pause(std::chrono::milliseconds time);
  Error missed(const std::vector<int>& ranks, std::chrono::milliseconds timeout);
  Error died(const std::vector<int>& ranks, std::chrono::nanoseconds forDead);

  const BootstrapOptions options_;
  const Connect connect_;

  std::mutex looking_;  // guards the next, but for its keys; held during a look
  Bootstrap bootstrap_;

  mutable std::mutex mutex_;  // guards all below; never held while the store is asked
  std::condition_variable brokenOff_;
  Error error_;
  bool inVain_ = false;  // a rank was waited for
  std::vector<int> absent_;
};

}  // namespace fairring
