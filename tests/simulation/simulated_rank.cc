#include "simulation/simulated_rank.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace fairring::simulation {

SimulatedRank::SimulatedRank(const Planner& planner, const RankSettings& settings, Post& post)
    : core(settings.costs),
      loop([this] { return core.clock(); }),
      channels(post, settings.rank),
      rank_(settings.rank),
      body_(std::make_shared<const TimedBody>(core, settings.movesBytes)) {
  const auto failed = [this](const Error& trouble) { loop.post([this, trouble] { fail(trouble); }); };
  const Troubles troubles{
      failed,
      [this, failed](int peer) {
        failed(makeError(ErrorKind::Mismatch, "rank ", peer, " made other calls than rank ", rank_));
      },
      [this, failed](int peer) {
        failed(makeError(ErrorKind::PeerLeft, "rank ", peer, " has left, and rank ", rank_, " has not"));
      }};
  const Topology& topology = planner.topology();
  const std::vector<int>& local = topology.ranksOf(topology.machineOf(rank_));
  const std::uint64_t express = Pipeline::expressBytesBeside(settings.stagingBytes);
  rails = std::make_unique<Rails>(loop, rank_, troubles, settings.limits);
  rails->use(channels.to(planner.peersOf(rank_)));
  onLoop([&] {
    loop.onUncaught(this, [this](const Error& trouble) { fail(trouble); });
    sharedMemory_ = std::make_unique<SharedMemory>(loop, local, rank_, settings.stagingBytes + express, troubles);
  });
  pipeline = std::make_unique<Pipeline>(
      planner, rank_,
      Pipeline::Levels{.machine = sharedMemory_.get(),
                       .rails = rails.get(),
                       .mostSlices = SharedMemory::kMostSlices,
                       .staging = sharedMemory_->flags().staging(),
                       .stagingBytes = settings.stagingBytes,
                       .expressBytes = express,
                       .tensorsMayBeImages = local.size() == 1,
                       .bodies = {.dense = body_, .ofCells = [this](auto cells, const auto& of) {
                                    return std::make_shared<const TimedCells>(core, std::move(cells), of);
                                  }}});
}

SimulatedRank::~SimulatedRank() {
  dead = true;  // what its loop still has to do is left undone
  onLoop([this] {
    closeChannels();
    loop.forgetUncaught(this);
    pipeline.reset();
    rails.reset();
    sharedMemory_.reset();
  });
}

void SimulatedRank::onLoop(const Loop::Task& task) {
  loop.post(task);
  loop.runOnce(std::chrono::milliseconds(0));
}

void SimulatedRank::attach(int peer, SimulatedRank& other) {
  std::vector<Descriptor> descriptors;
  for (const int fd : other.sharedMemory_->flags().descriptors()) descriptors.emplace_back(::dup(fd));
  sharedMemory_->flags().attach(peer, std::move(descriptors));
}

void SimulatedRank::closeChannels() {
  rails->stop();
  channels.close();
}

void SimulatedRank::fail(const Error& trouble) {
  if (error) return;
  error = trouble;
  sharedMemory_->stop();
  closeChannels();
  pipeline->fail(error);
  if (failed) failed(error);
}

bool SimulatedRank::isAtRest() const { return pipeline->isAtRest() && rails->isAtRest() && sharedMemory_->isAtRest(); }

std::set<int> SimulatedRank::missing() const {
  std::set<int> ranks = rails->missing();
  ranks.merge(sharedMemory_->missing());
  return ranks;
}

}  // namespace fairring::simulation
