#include "simulation/experiment.h"

#include <algorithm>
#include <functional>
#include <memory>

namespace fairring::simulation {

namespace {

constexpr int kRoot = 0;

// Ranks tell each other the sizes of an all-to-all.
WorldSettings settingsOf(const Cluster& cluster, bool tellsSizes) {
  return {.places = cluster.places,
          .planner = cluster.planner,
          .costs = cluster.costs,
          .grouping = cluster.grouping,
          .moved = tellsSizes ? Moved::Express : Moved::Nothing,
          .sharedMemory = cluster.sharedMemory};
}

// What goes over the network from here on.
class Counted {
 public:
  explicit Counted(World& world) : world_(world), sent_(sent()) {}

  Outcome outcome(double seconds, int times) const {
    Outcome outcome{.seconds = seconds / times};
    for (int rank = 0; rank < world_.size(); ++rank)
      outcome.mostConnections = std::max(outcome.mostConnections, world_.network().connectionsOf(rank));
    const std::vector<std::uint64_t> after = sent();
    for (std::size_t machine = 0; machine < sent_.size(); ++machine)
      outcome.linkBytes = std::max(outcome.linkBytes, static_cast<double>(after[machine] - sent_[machine]) / times);
    return outcome;
  }

 private:
  std::vector<std::uint64_t> sent() const {
    std::vector<std::uint64_t> bytes;
    const int machines = world_.planner().topology().machines();
    bytes.reserve(static_cast<std::size_t>(machines));
    for (int machine = 0; machine < machines; ++machine) bytes.push_back(world_.network().bytesOf(machine));
    return bytes;
  }

  World& world_;
  const std::vector<std::uint64_t> sent_;
};

class Course {
 public:
  explicit Course(const Experiment& experiment)
      : experiment_(experiment),
        world_(settingsOf(experiment.cluster, experiment.pattern == Pattern::AllToAll)),
        tensor_(new std::byte[experiment.bytes + 1]),
        signatures_(static_cast<std::size_t>(world_.size())) {}

  Outcome run() {
    play(1);  // plans and layouts are remembered afterwards, and every rank has woken up
    const Counted counted(world_);
    const Time begin = world_.now();
    play(experiment_.calls);
    return counted.outcome(secondsOf(ended_ - begin), experiment_.calls);
  }

 private:
  // Each rank makes its next call when the last has ended. Until nothing is left to do.
  void play(int calls) {
    unfinished_ = world_.size();
    for (int rank = 0; rank < world_.size(); ++rank) submit(rank, calls);
    world_.finish();
    if (error_) throw Failure(error_);
    check(unfinished_ == 0, ErrorKind::Usage, unfinished_, " simulated ranks never ended their calls");
  }

  void submit(int rank, int calls) {
    Call call = made(rank);
    call.done = [this, rank, calls](const Error& error) {
      if (error && !error_) error_ = error;
      if (error) return;
      if (calls > 1) return submit(rank, calls - 1);
      ended_ = std::max(ended_, world_.timeOf(rank));
      --unfinished_;
    };
    world_.submit(rank, std::move(call), ++signatures_[static_cast<std::size_t>(rank)]);
  }

  Call made(int rank) {
    Call call{.pattern = experiment_.pattern, .signature = {}, .done = nullptr};
    const bool isOfRanks = isByRank(experiment_.pattern);
    if (hasRoot(experiment_.pattern)) call.root = kRoot;
    const auto blocks = static_cast<std::uint64_t>(isOfRanks ? world_.size() : 1);
    const Reduction reduction{.dtype = experiment_.bytes % sizeof(float) == 0 ? DType::Float32 : DType::UInt8};
    const std::uint64_t elements = experiment_.bytes / bytesOf(reduction.dtype) / blocks;
    std::byte* const tensor = tensor_.get();
    if (experiment_.pattern == Pattern::AllReduce) {
      call.operands.push_back({tensor, elements, reduction});
      return call;
    }
    for (int block = 0; block < static_cast<int>(blocks); ++block) {
      const std::byte* const from = reads(rank, block) ? tensor : nullptr;
      std::byte* const to = writes(rank, block) ? tensor : nullptr;
      if (experiment_.pattern == Pattern::AllToAll) {
        const std::uint64_t bytes = elements * bytesOf(reduction.dtype);
        call.cells.push_back({from, bytes, to, bytes});
      } else {
        call.blocks.push_back({{.from = from, .to = to, .elements = elements, .reduction = reduction}});
      }
    }
    return call;
  }

  bool reads(int rank, int block) const {
    switch (experiment_.pattern) {
      case Pattern::AllGather:
      case Pattern::Gather: return block == rank;
      case Pattern::Broadcast:
      case Pattern::Scatter: return rank == kRoot;
      default: return true;
    }
  }
  bool writes(int rank, int block) const {
    switch (experiment_.pattern) {
      case Pattern::Broadcast: return rank != kRoot;
      case Pattern::Reduce:
      case Pattern::Gather: return rank == kRoot;
      case Pattern::ReduceScatter:
      case Pattern::Scatter: return block == rank;
      default: return true;
    }
  }

  const Experiment& experiment_;
  World world_;
  const std::unique_ptr<std::byte[]> tensor_;
  Time ended_{0};                          // on the last rank
  std::vector<std::uint64_t> signatures_;  // by rank: how many calls it has made
  int unfinished_ = 0;
  Error error_;  // the first
};

}  // namespace

Outcome carriedOut(const Experiment& experiment) {
  check(experiment.calls > 0, ErrorKind::Usage, "there are no calls to time");
  return Course(experiment).run();
}

}  // namespace fairring::simulation
