#include "wires.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <utility>

namespace fairring::testing {

namespace {

using simulation::ofSeconds;
using simulation::SimulatedRank;
using simulation::Time;
using simulation::World;

constexpr double kLateSeconds = 3e-3;  // that a side notices, or is connected, at most
constexpr int kSocketBytes = 8 << 10;  // of a socket's memory, about

std::pair<Descriptor, Descriptor> pairOfSockets() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw Failure(systemError("socketpair"));
  for (const int end : ends) ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &kSocketBytes, sizeof kSocketBytes);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

}  // namespace

// What the rails have. What a trial watches is told of each batch, as the simulated channels do.
class Wires::LaneChannels final : public Channels {
 public:
  LaneChannels(Wires& wires, int rank, SimulatedRank& self)
      : wires_(wires),
        rank_(rank),
        lanes_(self.loop, *self.rails,
               {.relink = [this](int peer, std::uint32_t lane) { wires_.relink(rank_, peer, lane); },
                .patience = World::kSilence}) {}

  void send(int peer, std::span<const Message> messages, Released released) override {
    if (const auto& watch = wires_.world_.post().onSend) watch(rank_, peer, messages);
    lanes_.send(peer, messages, std::move(released));
  }
  std::uint64_t bytesSeen(int peer) const override { return lanes_.bytesSeen(peer); }
  std::uint64_t sends(int peer) const override { return lanes_.sends(peer); }
  void close() override {
    isClosed_ = true;
    lanes_.close();
  }

  bool isClosed() const { return isClosed_; }
  void expect(int peer) { lanes_.expect(peer); }
  void add(int peer, std::uint32_t lane, Descriptor socket) { lanes_.add(peer, lane, Stream(std::move(socket))); }

 private:
  Wires& wires_;
  const int rank_;
  TcpChannels lanes_;
  bool isClosed_ = false;
};

struct Wires::Wire {
  struct End {
    int rank = 0;
    Descriptor socket;            // this side of it
    std::vector<std::byte> here;  // has crossed the network, and the rank's socket has no room for it
    std::uint64_t underWay = 0;   // bytes from here
    std::uint64_t window = 0;     // at most
    Time lastThere{0};            // when they arrive, so that nothing overtakes
    bool isOver = false;          // the rank has closed its socket
    bool isOverThere = false;     // the other one has, and all that it wrote is here
  };
  Place place;
  std::array<End, 2> ends;  // the lower rank's first
  bool isBroken = false;
};

Wires::Wires(World& world, std::uint32_t lanes, std::uint64_t seed) : world_(world), random_(seed) {
  for (int rank = 0; rank < world.size(); ++rank) {
    SimulatedRank& self = world.rank(rank);
    auto channels = std::make_unique<LaneChannels>(*this, rank, self);
    channels_.push_back(channels.get());
    self.onLoop([&] {
      for (const int peer : world.planner().peersOf(rank)) channels->expect(peer);
      self.use(std::move(channels));
    });
  }
  world.turnIsOver = [this](int rank) { serve(rank); };
  world.died = [this](int rank) { died(rank); };
  for (int rank = 0; rank < world.size(); ++rank) {
    for (const int peer : world.planner().peersOf(rank)) {
      for (std::uint32_t lane = 0; rank < peer && lane < lanes; ++lane) connect({rank, peer, lane});
    }
  }
}

Wires::~Wires() { world_.turnIsOver = world_.died = nullptr; }

Time Wires::someTime() {  // most are short
  const double share = static_cast<double>(number(1 << 20)) / (1 << 20);
  return ofSeconds(kLateSeconds * share * share * share);
}

void Wires::connect(const Place& place) {
  const auto& [lower, higher, lane] = place;
  if (channels_[static_cast<std::size_t>(lower)]->isClosed() ||
      channels_[static_cast<std::size_t>(higher)]->isClosed() || world_.rank(lower).dead || world_.rank(higher).dead)
    return;
  const auto wire = std::make_shared<Wire>();
  wire->place = place;
  for (const auto& [end, rank, peer] : {std::tuple(0, lower, higher), std::tuple(1, higher, lower)}) {
    auto [own, ranks] = pairOfSockets();
    wire->ends[static_cast<std::size_t>(end)] = {
        .rank = rank, .socket = std::move(own), .here = {}, .window = 1 + number(32 << 10)};
    attach(rank, peer, lane, std::move(ranks));
  }
  wires_[place] = wire;
}

void Wires::attach(int rank, int peer, std::uint32_t lane, Descriptor socket) {
  const auto shared = std::make_shared<Descriptor>(std::move(socket));
  world_.at(world_.now() + someTime(), [this, rank, peer, lane, shared] {
    SimulatedRank& self = world_.rank(rank);
    if (self.dead) return;
    self.loop.post([this, &self, rank, peer, lane, shared] {
      if (self.dead) return;  // or gone, and these wires with it
      LaneChannels& channels = *channels_[static_cast<std::size_t>(rank)];
      if (!channels.isClosed()) channels.add(peer, lane, std::move(*shared));
    });
    world_.wake(rank);
  });
}

// Both sides ask for it when they find it broken; the higher one connects, as in a job.
void Wires::relink(int rank, int peer, std::uint32_t lane) {
  if (rank < peer) return;
  const Place place{peer, rank, lane};
  world_.at(world_.now() + someTime(), [this, place] { connect(place); });
}

void Wires::breakLanes(int rank) {
  for (auto& [place, wire] : wires_) {
    const auto& [lower, higher, lane] = place;
    if ((lower != rank && higher != rank) || wire->isBroken) continue;
    wire->isBroken = true;
    for (Wire::End& end : wire->ends) {
      world_.at(world_.now() + someTime(), [this, wire, &end] {
        end.socket.reset();
        world_.wake(end.rank);
      });
    }
  }
}

// A process that has died leaves what it wrote before.
void Wires::died(int rank) {
  for (const auto& [place, wire] : wires_) {
    for (const std::size_t end : {0U, 1U}) {
      if (wire->ends[end].rank != rank || wire->isBroken) continue;
      take(wire, end);
      wire->ends[end].isOver = true;
      carry(wire, end, {});
    }
  }
}

void Wires::serve(int rank) {
  for (const auto& [place, wire] : wires_) {
    for (const std::size_t end : {0U, 1U}) {
      if (wire->ends[end].rank != rank || wire->isBroken) continue;
      handOver(wire, end);
      take(wire, end);
    }
  }
}

// What this end's rank has written.
void Wires::take(const std::shared_ptr<Wire>& wire, std::size_t from) {
  Wire::End& end = wire->ends[from];
  while (!wire->isBroken && !end.isOver && end.socket && end.underWay < end.window) {
    std::vector<std::byte> bytes(1 + number(number(4) == 0 ? 64 : 16 << 10));
    const ssize_t got = ::recv(end.socket.get(), bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == ECONNRESET) continue;  // closed with something unread: the end follows
    if (got < 0) return;
    bytes.resize(static_cast<std::size_t>(got));
    end.isOver = got == 0;
    end.underWay += bytes.size();
    carry(wire, from, std::move(bytes));
  }
}

// No bytes: the end of them.
void Wires::carry(const std::shared_ptr<Wire>& wire, std::size_t from, std::vector<std::byte> bytes) {
  const std::size_t to = 1 - from;
  const auto shared = std::make_shared<std::vector<std::byte>>(std::move(bytes));
  const auto there = [this, wire, from, to, shared] {
    if (wire->isBroken) return;
    wire->ends[from].underWay -= shared->size();
    wire->ends[to].isOverThere = wire->ends[to].isOverThere || shared->empty();
    std::ranges::copy(*shared, std::back_inserter(wire->ends[to].here));
    handOver(wire, to);
    take(wire, from);
    world_.wake(wire->ends[from].rank);
  };
  const auto crossed = [this, wire, from, there] {
    Time& last = wire->ends[from].lastThere;
    last = std::max(last, world_.now() + someTime());
    world_.at(last, there);
  };
  const Time leaves = world_.timeOf(wire->ends[from].rank);
  world_.at(leaves, [this, wire, from, to, shared, crossed] {
    if (wire->isBroken) return;
    world_.network().send(wire->ends[from].rank, wire->ends[to].rank,
                          {.bytes = std::max<std::uint64_t>(shared->size(), 1), .begun = [] {}, .whole = crossed});
  });
}

// What has come for this end's rank, as far as its socket has room.
void Wires::handOver(const std::shared_ptr<Wire>& wire, std::size_t to) {
  Wire::End& end = wire->ends[to];
  if (!end.socket || (end.here.empty() && !end.isOverThere)) return;
  while (!end.here.empty()) {
    const ssize_t sent = ::send(end.socket.get(), end.here.data(), end.here.size(), MSG_NOSIGNAL);
    if (sent <= 0) break;
    end.here.erase(end.here.begin(), end.here.begin() + sent);
  }
  if (end.here.empty() && std::exchange(end.isOverThere, false)) ::shutdown(end.socket.get(), SHUT_WR);
  world_.wake(end.rank);
}

}  // namespace fairring::testing
