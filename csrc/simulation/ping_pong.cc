#include "simulation/ping_pong.h"

#include <memory>

#include "exchange/point_to_point.h"

namespace fairring::simulation {

namespace {

// One of the two ranks. Its messages have the place of the rails, which have nothing to do meanwhile.
class Player {
 public:
  Player(World& world, int rank, int other, std::uint64_t bytes)
      : world_(world),
        rank_(rank),
        other_(other),
        memory_(new std::byte[bytes + 1]),
        bytes_(bytes),
        rails_(box().receiver),
        messages_(world.rank(rank).loop, rank, world.rank(rank).channels,
                  {.reach = [](int, PointToPoint::Reach) {},
                   .channelEnded = [](int, const Error&) {},
                   .failed = [this](const Error& error) { error_ = error; },
                   .progress = [] {}}) {
    box().receiver = &messages_;
  }
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;
  ~Player() { box().receiver = rails_; }

  // Sends and receives in turns, so many times each.
  void play(bool sends, int times) {
    if (times == 0) return;
    const auto next = [this, sends, times](const Error& error) {
      if (error) error_ = error;
      if (!error) play(!sends, times - 1);
    };
    world_.post(rank_, [this, sends, next](SimulatedRank& self) {
      self.core.charge(self.core.costs().callSeconds);
      if (sends)
        return messages_.send({.to = other_, .label = {}, .data = memory_.get(), .bytes = bytes_, .done = next});
      messages_.receive({.from = other_,
                         .label = {},
                         .data = memory_.get(),
                         .bytes = bytes_,
                         .done = [this, next](const Error& error, int) {
                           ended_ = world_.timeOf(rank_);
                           ++received_;
                           next(error);
                         }});
    });
  }

  Time ended() const { return ended_; }  // the last message that it received
  int received() const { return received_; }
  const Error& error() const { return error_; }

 private:
  Postbox& box() { return world_.post().boxes[static_cast<std::size_t>(rank_)]; }

  World& world_;
  const int rank_;
  const int other_;
  const std::unique_ptr<std::byte[]> memory_;
  const std::uint64_t bytes_;
  MessageReceiver* const rails_;
  PointToPoint messages_;
  Time ended_{0};
  int received_ = 0;
  Error error_;
};

}  // namespace

Time pingPong(World& world, std::uint64_t bytes, int rounds, const std::function<void()>& everySoOften) {
  const Topology& topology = world.planner().topology();
  const int last = world.size() - 1;
  check(topology.machineOf(0) != topology.machineOf(last), ErrorKind::Usage, "rank 0 and rank ", last,
        " stand on one machine, within which messages are not simulated; give two machines or more");
  Player first(world, 0, last, bytes);
  Player second(world, last, 0, bytes);
  first.play(true, 2 * rounds);
  second.play(false, 2 * rounds);
  world.finish(everySoOften);
  for (const Player* player : {&first, &second}) {
    if (player->error()) throw Failure(player->error());
  }
  check(first.received() == rounds, ErrorKind::Usage, "of ", rounds, " simulated messages ", first.received(),
        " came back");
  return first.ended();
}

}  // namespace fairring::simulation
