// The connections of TCP's lanes in virtual time: what is between two ranks is the real transport/tcp_channel.h, on
// wires (wire.h). A lane that breaks is made anew by the higher rank. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "simulation/world.h"
#include "transport/tcp_channel.h"
#include "wire.h"

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
  class LaneChannel;
  using Place = std::tuple<int, int, std::uint32_t>;  // the lower rank, the higher one, the lane

  void connect(const Place& place);
  void attach(int rank, int peer, std::uint32_t lane, Descriptor socket);
  void relink(int rank, int peer, std::uint32_t lane);
  void serve(int rank);
  void died(int rank);

  simulation::World& world_;
  Surroundings surroundings_;
  std::vector<std::map<int, std::shared_ptr<LaneChannel>>> channels_;  // by rank and peer
  std::map<Place, std::shared_ptr<Wire>> wires_;
};

}  // namespace fairring::testing
