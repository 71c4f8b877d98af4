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
// generation, whether it was joined, and a name of this membership alone: the process remembers those it left well.
//
// One thread at a time; leave() and generation() any.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace fairring {

class Seating {
 public:
  Seating(c10d::Store& store, int rank);  // takes a seat; waits for nobody

  std::int64_t generation() const { return generation_; }
  bool isClosed(c10d::Store& store) const;
  void moveOn(c10d::Store& store);  // to the first generation that is not closed
  void leave() const;               // in good order: the next membership of this process goes on counting

 private:
  void sit(c10d::Store& store, std::int64_t generation, bool joined);

  const std::string seatKey_;
  const std::string name_;
  std::atomic<std::int64_t> generation_{0};
};

}  // namespace fairring
