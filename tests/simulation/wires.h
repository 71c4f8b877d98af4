// The connections of TCP's lanes in virtual time: what is between two ranks is the real transport/tcp_channels.h, on
// sockets of the process, and between the sockets lies the simulated network. After each turn of a rank its wires take
// what it has written, in pieces of any length and no more than a window at once, and hand it on when it has crossed
// the network. A lane that breaks loses what is under way, in both directions, and each side finds that out in its own
// time; the higher rank then has it made anew. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include "simulation/world.h"
#include "transport/tcp_channels.h"

namespace fairring::testing {

class Wires {
 public:
  // Of a world that has not begun: its ranks get these channels, with so many lanes to each peer of their rails.
  Wires(simulation::World& world, std::uint32_t lanes, std::uint64_t seed);
  ~Wires();
  Wires(const Wires&) = delete;
  Wires& operator=(const Wires&) = delete;

  void breakLanes(int rank);  // those that stand

 private:
  class LaneChannels;
  struct Wire;
  using Place = std::tuple<int, int, std::uint32_t>;  // the lower rank, the higher one, the lane

  std::uint64_t number(std::uint64_t below) { return random_() % below; }
  simulation::Time someTime();
  void connect(const Place& place);
  void attach(int rank, int peer, std::uint32_t lane, Descriptor socket);
  void relink(int rank, int peer, std::uint32_t lane);
  void serve(int rank);
  void take(const std::shared_ptr<Wire>& wire, std::size_t from);
  void carry(const std::shared_ptr<Wire>& wire, std::size_t from, std::vector<std::byte> bytes);
  void handOver(const std::shared_ptr<Wire>& wire, std::size_t to);
  void died(int rank);

  simulation::World& world_;
  std::mt19937_64 random_;
  std::vector<LaneChannels*> channels_;  // by rank; theirs
  std::map<Place, std::shared_ptr<Wire>> wires_;
};

}  // namespace fairring::testing
