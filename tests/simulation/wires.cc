#include "wires.h"

#include <array>
#include <utility>

namespace fairring::testing {

namespace {

using simulation::SimulatedRank;
using simulation::World;

}  // namespace

// The rails' own. A trial that watches is told of each batch, as it is by the simulated channels.
class Wires::LaneChannel final : public Channel {
 public:
  LaneChannel(Wires& wires, int rank, int peer, SimulatedRank& self, std::shared_ptr<SpareMemory> spare)
      : wires_(wires),
        rank_(rank),
        peer_(peer),
        lanes_(std::make_shared<TcpChannel>(
            self.loop, peer, *self.rails,
            Relinking{.relink = [&wires, rank](int to, std::uint32_t lane) { wires.relink(rank, to, lane); },
                      .patience = World::kSilence},
            std::move(spare))) {}

  void send(std::span<const Message> messages, Released released) override {
    if (isClosed_) return;
    if (const auto& watch = wires_.world_.post().onSend) watch(rank_, peer_, messages);
    lanes_->send(messages, std::move(released));
  }
  std::uint64_t bytesSeen() const override { return lanes_->bytesSeen(); }
  std::uint64_t sends() const override { return lanes_->sends(); }
  void close() override {
    isClosed_ = true;
    lanes_->close();
  }
  bool hasEnded() const override { return lanes_->hasEnded(); }
  void add(std::uint32_t lane, Stream stream) override { lanes_->add(lane, std::move(stream)); }

  bool isClosed() const { return isClosed_; }

 private:
  Wires& wires_;
  const int rank_;
  const int peer_;
  const std::shared_ptr<TcpChannel> lanes_;
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
    auto& channels = channels_.emplace_back();
    self.onLoop([&] {
      const auto spare = std::make_shared<SpareMemory>();
      for (const int peer : world.planner().peersOf(rank))
        channels[peer] = std::make_shared<LaneChannel>(*this, rank, peer, self, spare);
      self.rails->use({channels.begin(), channels.end()});
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
  for (int rank = 0; rank < world_.size(); ++rank) {
    world_.rank(rank).onLoop([&] {
      for (const auto& [peer, channel] : channels_[static_cast<std::size_t>(rank)]) channel->close();
    });
  }
  world_.turnIsOver = world_.died = nullptr;
}

void Wires::connect(const Place& place) {
  const auto& [lower, higher, lane] = place;
  if (channels_[static_cast<std::size_t>(lower)].at(higher)->isClosed() ||
      channels_[static_cast<std::size_t>(higher)].at(lower)->isClosed() || world_.rank(lower).dead ||
      world_.rank(higher).dead)
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
      LaneChannel& channel = *channels_[static_cast<std::size_t>(rank)].at(peer);
      if (!channel.isClosed()) channel.add(lane, std::move(*shared));
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
