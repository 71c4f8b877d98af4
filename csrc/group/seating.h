// Which generation of a group this rank belongs to. A group that is made again on the same store (destroy and init, a
// restart by torchrun, a retry of some ranks) is a new generation of it: ranks that meet in one share its secret and
// its facts, and never read what another has left.
//
// In a life without accidents a rank's generations are 1, 2, 3, ... as it makes, leaves and makes the group, so equally
// many on all ranks. A rank whose last membership did not end well (it is another process's, or it failed) can't know
// how far the others are: it closes all generations there are, and sits in the next. Such a rank is missing in all
// later ones, so nobody can have met there; those who wait in one see that it is closed, and move on too. Where another
// rank has closed them already, it only joins; twice in a row it does not, for whoever sits there may be dead as well.
//
// Store keys, under the group's prefix: "fairring/closed", "fairring/highest", and "fairring/<rank>/seat", which holds
// generation, whether it was joined, and a name of this membership alone: the process remembers those it left well
// (Departures).
//
// One thread at a time; leave() and generation() any.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>

#include "group/key_value.h"

namespace fairring {

// The memberships that a process left in good order, by name. A forked child takes them along. Any thread.
class Departures {
 public:
  void note(const std::string& name);
  bool forget(const std::string& name);  // whether it was there

 private:
  std::mutex mutex_;
  std::set<std::string> names_;
};

class Seating {
 public:
  Seating(KeyValue& store, int rank, Departures& departures);  // takes a seat; waits for nobody

  std::int64_t generation() const { return generation_; }
  bool isClosed(KeyValue& store) const;
  void moveOn(KeyValue& store);  // to the first generation that is not closed
  void leave() const;            // in good order: the next membership of this process goes on counting

 private:
  void sit(KeyValue& store, std::int64_t generation, bool joined);

  Departures& departures_;
  const std::string seatKey_;
  const std::string name_;
  std::atomic<std::int64_t> generation_{0};
};

}  // namespace fairring
