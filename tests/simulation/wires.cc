#include "wires.h"

#include <array>
#include <utility>

namespace fairring::testing {

namespace {

using simulation::SimulatedRank;
using simulation::World;

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
    if (isClosed_) return;
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

Wires::Wires(World& world, std::uint32_t lanes, std::uint64_t seed)
    : world_(world),
      surroundings_{.network = world.network(),
                    .now = [&world] { return world.now(); },
                    .at = [&world](simulation::Time when, auto event) { world.at(when, std::move(event)); },
                    .timeOf = [&world](int rank) { return world.timeOf(rank); },
                    .wake = [&world](int rank) { world.wake(rank); },
                    .random = std::mt19937_64(seed)} {
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

// What the ranks' loops still have to do ends here too: it may send.
Wires::~Wires() {
  for (int rank = 0; rank < world_.size(); ++rank)
    world_.rank(rank).onLoop([&] { channels_[static_cast<std::size_t>(rank)]->close(); });
  world_.turnIsOver = world_.died = nullptr;
}

void Wires::connect(const Place& place) {
  const auto& [lower, higher, lane] = place;
  if (channels_[static_cast<std::size_t>(lower)]->isClosed() ||
      channels_[static_cast<std::size_t>(higher)]->isClosed() || world_.rank(lower).dead || world_.rank(higher).dead)
    return;
  const auto wire = std::make_shared<Wire>(surroundings_, std::array{lower, higher}, Wire::Kind::Network);
  for (const auto& [end, rank, peer] : {std::tuple(0U, lower, higher), std::tuple(1U, higher, lower)})
    attach(rank, peer, lane, wire->open(end));
  wires_[place] = wire;
}

void Wires::attach(int rank, int peer, std::uint32_t lane, Descriptor socket) {
  const auto shared = std::make_shared<Descriptor>(std::move(socket));
  world_.at(world_.now() + surroundings_.someTime(), [this, rank, peer, lane, shared] {
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
  world_.at(world_.now() + surroundings_.someTime(), [this, place] { connect(place); });
}

void Wires::breakLanes(int rank) {
  for (const auto& [place, wire] : wires_) {
    if (wire->isOf(rank)) wire->cut();
  }
}

void Wires::died(int rank) {
  for (const auto& [place, wire] : wires_) wire->died(rank);
}

void Wires::serve(int rank) {
  for (const auto& [place, wire] : wires_) wire->serve(rank);
}

}  // namespace fairring::testing
