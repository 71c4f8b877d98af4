#include "simulation/world.h"

#include <poll.h>

#include <algorithm>
#include <utility>

namespace fairring::simulation {

namespace {

constexpr double kShuffledSeconds = 400e-6;   // that a message or a rank is late, at most
constexpr std::chrono::seconds kLastWord{2};  // after which the end of a channel alone is an error

}  // namespace

World::World(const WorldSettings& settings)
    : costs_(settings.costs.core),
      planner_(Topology(settings.places, settings.grouping), settings.planner),
      network_(events_, planner_.topology().machineOfEach(), settings.costs.network),
      post_{.events = events_,
            .network = network_,
            .boxes = std::vector<Postbox>(settings.places.size()),
            .movesBytes = settings.movesBytes,
            .copiedBytes = settings.copiedBytes,
            .latencySeconds = settings.costs.network.latencySeconds,
            .delay = nullptr,
            .onSend = nullptr} {
  if (settings.shuffle) {
    random_.emplace(*settings.shuffle);
    network_.delay = [this] { return someTime(kShuffledSeconds); };
    post_.delay = [this] { return someTime(kShuffledSeconds); };
  }
  for (int rank = 0; rank < size(); ++rank) makeRank(rank, settings);
  for (int rank = 0; rank < size(); ++rank) introduce(rank);
}

void World::makeRank(int rank, const WorldSettings& settings) {
  ranks_.push_back(std::make_unique<SimulatedRank>(planner_,
                                                   RankSettings{.rank = rank,
                                                                .costs = settings.costs.core,
                                                                .stagingBytes = settings.planner.totalMemoryBytes,
                                                                .limits = settings.limits,
                                                                .movesBytes = settings.movesBytes},
                                                   post_));
  SimulatedRank& self = *ranks_.back();
  post_.boxes[static_cast<std::size_t>(rank)] = {.loop = &self.loop,
                                                 .core = &self.core,
                                                 .receiver = self.rails.get(),
                                                 .channels = &self.channels,
                                                 .notify = [this, rank] { notify(rank); }};
  self.rails->onChannelEnded = [this, rank](int peer, const Error& error) {
    tell(rank, makeError(ErrorKind::PeerDied, "the channel to rank ", peer, " broke: ", error.text()),
         present() + kLastWord);
  };
  self.failed = [this, rank](const Error& error) {
    for (const int peer : neighbours(rank)) tell(peer, error, present() + someTime(1e-3) + Time(1));
  };
}

void World::introduce(int rank) {
  const Topology& topology = planner_.topology();
  for (const int peer : topology.ranksOf(topology.machineOf(rank))) {
    if (peer != rank) this->rank(rank).attach(peer, this->rank(peer));
  }
  this->rank(rank).onLoop([this, rank] { this->rank(rank).pipeline->open(); });
}

std::set<int> World::neighbours(int rank) const {
  const Topology& topology = planner_.topology();
  std::set<int> peers = planner_.peersOf(rank);
  const auto& local = topology.ranksOf(topology.machineOf(rank));
  peers.insert(local.begin(), local.end());
  peers.erase(rank);
  return peers;
}

Time World::present() const { return acting_ == nullptr ? now() : std::max(now(), acting_->time()); }

Time World::someTime(double mostSeconds) {
  if (!random_) return Time(0);
  // Most are short, so that a few are late.
  const double share = static_cast<double>((*random_)() >> 11) / 9007199254740992.0;
  return ofSeconds(mostSeconds * share * share * share);
}

void World::submit(int rank, Call call, std::uint64_t signature) {
  auto shared = std::make_shared<Call>(std::move(call));
  post(rank, [this, rank, shared, signature](SimulatedRank& self) {
    self.core.charge(self.core.costs().callSeconds);
    if (self.error) return shared->done(self.error);
    const std::shared_ptr<Arrival> inputs = shared->inputs;
    self.pipeline->submit(std::move(*shared), signature);
    if (!inputs) return;
    inputs->whenOver([this, rank](const Error&) { post(rank, [](SimulatedRank& one) { one.pipeline->resume(); }); });
  });
}

void World::post(int rank, std::function<void(SimulatedRank&)> task) {
  SimulatedRank& self = this->rank(rank);
  if (self.dead) return;
  self.loop.post([&self, task = std::move(task)] {
    if (!self.dead) task(self);
  });
  notify(rank);
}

bool World::step() {
  if (events_.empty()) return false;
  events_.runNext();
  return true;
}

void World::finish() {
  while (step()) {
  }
}

void World::notify(int rank) {
  SimulatedRank& self = this->rank(rank);
  if (self.dead) return;
  const Time when = std::max(present(), self.core.time());
  schedule(rank, self.asleep ? when + someTime(kShuffledSeconds) : when);
}

void World::schedule(int rank, Time when) {
  SimulatedRank& self = this->rank(rank);
  if (self.nextTurn <= when) return;
  self.nextTurn = when;
  events_.at(when, [this, rank, when] { turn(rank, when); });
}

void World::turn(int rank, Time when) {
  SimulatedRank& self = this->rank(rank);
  if (self.dead || self.nextTurn != when) return;  // it has had this turn already
  self.nextTurn = kNever;
  const Time begin = std::max(self.pausedUntil, self.core.time());
  if (begin > now()) return schedule(rank, begin);
  self.core.begin(now());
  if (std::exchange(self.asleep, false)) self.core.charge(costs_.wakeSeconds);
  acting_ = &self.core;
  const bool served = self.loop.runOnce(std::chrono::milliseconds(0));
  if (served) {
    self.core.charge(costs_.turnSeconds);
    ringDoorbells(rank);
    if (turnIsOver) turnIsOver(rank);
    schedule(rank, self.core.time());
  }
  if (const auto timer = self.loop.firstTimer(); timer != Loop::Clock::time_point::max())
    schedule(rank, std::max(self.core.time(), Time(timer.time_since_epoch())));
  self.asleep = !served;
  acting_ = nullptr;
}

// Wakes up the machine's ranks whose doorbell was rung, since no rank sleeps at a doorbell here.
void World::ringDoorbells(int rank) {
  const Topology& topology = planner_.topology();
  std::vector<pollfd> bells;
  const std::vector<int>& local = topology.ranksOf(topology.machineOf(rank));
  bells.reserve(local.size());
  for (const int peer : local) bells.push_back({this->rank(peer).flags().doorbell(), POLLIN, 0});
  if (::poll(bells.data(), bells.size(), 0) <= 0) return;
  for (std::size_t i = 0; i < local.size(); ++i) {
    if ((bells[i].revents & POLLIN) != 0 && local[i] != rank) notify(local[i]);
  }
}

void World::tell(int rank, const Error& error, Time when) {
  events_.at(when, [this, rank, error] {
    if (!this->rank(rank).error) post(rank, [error](SimulatedRank& self) { self.fail(error); });
  });
}

void World::kill(int rank) {
  SimulatedRank& self = this->rank(rank);
  if (std::exchange(self.dead, true)) return;
  if (!died) self.channels.close();
  const Error lost = makeError(ErrorKind::PeerDied, "rank ", rank, "'s process ended");
  const Error closed = makeError(ErrorKind::Connection, "rank ", rank, " reset the connection");
  const std::set<int> rails = planner_.peersOf(rank);
  for (const int peer : neighbours(rank)) {
    tell(peer, lost, now() + ofSeconds(costs_.wakeSeconds) + someTime(5e-3));
    if (died || !rails.contains(peer)) continue;
    events_.at(now() + someTime(5e-3), [this, peer, rank, closed] {
      post(peer, [rank, closed](SimulatedRank& other) { other.rails->ended(rank, closed); });
    });
  }
  if (died) died(rank);
}

void World::pause(int rank, Time until) { this->rank(rank).pausedUntil = until; }

void World::slow(int rank, double factor) { this->rank(rank).core.slowness = factor; }

void World::cut(int from, int to, Time until) {
  network_.cut(from, to, until);
  if (until != kNever) return;
  for (const int rank : planner_.topology().ranksOf(from)) {
    for (const int peer : neighbours(rank)) {
      if (planner_.topology().machineOf(peer) != to) continue;
      const auto silent = [](int who) {
        return makeError(ErrorKind::PeerDied, "nothing came from rank ", who, " for ",
                         std::chrono::milliseconds(kSilence).count(), " ms");
      };
      tell(peer, silent(rank), now() + kSilence);
      tell(rank, silent(peer), now() + kSilence + ofSeconds(1e-3));
    }
  }
}

}  // namespace fairring::simulation
