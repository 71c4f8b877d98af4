// Links between machines, in virtual time. Each machine has one link up and one down. A link gives its connections
// turns, a quantum of bytes each, so that they have equal shares of it; a byte goes on as soon as it has come, so what
// is not held up on its way takes the time of one link and the latency. Of a connection's parcels express ones go
// first.
//
// There is no loss and no window: what a sender has sent waits before the receiver's link, as in TCP it would wait at
// the sender. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "simulation/costs.h"
#include "simulation/event_queue.h"

namespace fairring::simulation {

struct Parcel {
  std::uint64_t bytes = 0;      // more than none
  bool isUrgent = false;        // before others of its connection
  std::function<void()> begun;  // its first bytes are there
  std::function<void()> whole;  // all of it is
};

class Network {
 public:
  // machineOf: of each rank.
  Network(EventQueue& events, std::vector<int> machineOf, const NetworkCosts& costs);

  void send(int from, int to, Parcel parcel);
  void drop(int from);  // what has not left its machine yet, of all of this rank's connections
  // Nothing arrives between two machines, in this direction, until then.
  void cut(int from, int to, Time until);
  // What is added to the way of each quantum; none: nothing.
  std::function<Time()> delay;

  std::size_t connectionsOf(int rank) const;  // that it has sent something over
  std::uint64_t bytesOf(int machine) const { return up_[static_cast<std::size_t>(machine)].bytes; }  // sent so far

 private:
  struct Connection;
  struct Quantum {
    std::shared_ptr<Parcel> parcel;
    std::uint64_t bytes;
    bool isFirst;
    bool isLast;
    Time lastByteAt{0};  // before the receiver's link
  };
  struct Connection {
    int from;
    int to;
    struct Cut {
      std::shared_ptr<Parcel> parcel;
      std::uint64_t sent = 0;
    };
    std::array<std::list<Cut>, 2> waiting;  // the urgent ones first
    std::list<Quantum> arriving;            // before the link down
    Time lastArrival{0};                    // there: nothing overtakes
  };
  struct Link {
    std::deque<Connection*> turns;  // that have something for it
    bool isBusy = false;
    std::uint64_t bytes = 0;
    double bytesPerSecond = 0;
  };

  int machine(int rank) const { return machineOf_[static_cast<std::size_t>(rank)]; }
  Connection& connection(int from, int to);
  static Quantum next(Connection& connection, std::uint64_t most);
  void pumpUp(int machine);
  void pumpDown(int machine);
  void leave(Connection& connection, Quantum quantum, Time end);
  Time heldUntil(const Connection& connection) const;

  EventQueue& events_;
  const std::vector<int> machineOf_;
  const NetworkCosts costs_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  std::map<int, std::vector<Connection*>> ofRank_;
  std::vector<Link> up_;
  std::vector<Link> down_;
  std::map<std::pair<int, int>, Time> cuts_;
};

}  // namespace fairring::simulation
