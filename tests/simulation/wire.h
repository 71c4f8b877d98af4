// One connection in virtual time: each side has a socket of the process, and the simulated network lies between the two
// other ends. What a side writes is taken in pieces of any length and no more than a window at once, and is handed on
// when it has crossed the network; so a socket may be full in the midst of a message. A wire that breaks loses what is
// under way in both directions, and each side finds that out in its own time. Between ranks of one machine it needs no
// network, and carries descriptors. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "base/descriptor.h"
#include "simulation/network.h"

namespace fairring::testing {

struct Surroundings {  // of a wire
  simulation::Network& network;
  std::function<simulation::Time()> now;
  std::function<void(simulation::Time, simulation::EventQueue::Event)> at;
  std::function<simulation::Time(int rank)> timeOf;
  std::function<void(int rank)> wake;  // there may be something for its loops
  std::mt19937_64 random;

  std::uint64_t number(std::uint64_t below) { return random() % below; }
  simulation::Time someTime();  // that something is late; most are short
};

class Wire : public std::enable_shared_from_this<Wire> {
 public:
  enum class Kind : std::uint8_t { Network, Local };

  Wire(Surroundings& surroundings, std::array<int, 2> ranks, Kind kind);

  bool isLocal() const { return kind_ == Kind::Local; }
  bool isBroken() const { return isBroken_; }
  bool isOf(int rank) const { return ends_[0].rank == rank || ends_[1].rank == rank; }
  bool isOver() const;  // both sides have closed it
  // The socket of that side. A side that is `connecting` can't write before connected().
  Descriptor open(std::size_t end, bool connecting = false);
  void connected(std::size_t end);
  void serve(int rank);  // after a turn of that rank's
  void cut();            // it breaks
  void died(int rank);   // and leaves what it wrote before
  // That side is a stranger's, who writes this and closes it or not, whatever the other one answers.
  void speak(std::size_t end, std::span<const std::byte> bytes, bool closes);
  bool isStrangers() const { return ends_[0].isStranger; }
  std::uint64_t writtenBy(std::size_t end) const { return ends_[end].written; }
  // Of a connection that one side has begun: the other has not answered yet, as far as that can know.
  bool isBeingMade() const { return ends_[0].handedOver == 0; }
  // So many bytes go from that side to the other one, and then it is called; never where they are lost.
  void cross(std::size_t from, std::uint64_t bytes, std::function<void()> there);

  bool isLane = false;  // it carries payload
  // The first bytes of who connected, which a stranger may have heard.
  const std::shared_ptr<std::vector<std::byte>> greeting = std::make_shared<std::vector<std::byte>>();

 private:
  struct Piece {
    std::vector<std::byte> bytes;  // none: the end of them
    std::vector<Descriptor> descriptors;
  };
  struct End {
    int rank = 0;
    Descriptor socket;              // this side of it
    std::deque<Piece> here;         // have crossed the network, and the rank's socket has no room for them
    std::uint64_t underWay = 0;     // bytes from here
    std::uint64_t window = 0;       // at most
    std::uint64_t written = 0;      // bytes, by the rank
    std::uint64_t handedOver = 0;   // bytes, to the rank
    simulation::Time lastLeft{0};   // when they leave, and
    simulation::Time lastThere{0};  // when they arrive, so that nothing overtakes
    bool isConnecting = false;
    bool isStranger = false;   // it has no socket here
    bool isOver = false;       // the rank has closed its socket
    bool isOverThere = false;  // the other one has, and all that it wrote is here
  };

  void take(std::size_t from);
  void carry(std::size_t from, Piece piece);
  void handOver(std::size_t to);

  Surroundings& surroundings_;
  const Kind kind_;
  std::array<End, 2> ends_;
  bool isBroken_ = false;
};

}  // namespace fairring::testing
