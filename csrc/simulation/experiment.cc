#include "simulation/experiment.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "simulation/training_steps.h"

namespace fairring::simulation {

namespace {

WorldSettings settingsOf(const Cluster& cluster) {
  return {.places = cluster.places,
          .planner = cluster.planner,
          .costs = cluster.costs,
          .moves = false,
          .sharedMemory = cluster.sharedMemory};
}

// What goes over the network from here on.
class Counted {
 public:
  explicit Counted(World& world) : world_(world), messages_(world.post().messages), sent_(sent()) {}

  Outcome outcome(double seconds, int times) const {
    Outcome outcome{.seconds = seconds / times, .events = world_.events()};
    for (int rank = 0; rank < world_.size(); ++rank)
      outcome.mostConnections = std::max(outcome.mostConnections, world_.network().connectionsOf(rank));
    const std::vector<std::uint64_t> after = sent();
    for (std::size_t machine = 0; machine < sent_.size(); ++machine)
      outcome.linkBytes = std::max(outcome.linkBytes, static_cast<double>(after[machine] - sent_[machine]) / times);
    outcome.messages = static_cast<double>(world_.post().messages - messages_) / world_.size() / times;
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
  const std::uint64_t messages_;
  const std::vector<std::uint64_t> sent_;
};

class Course {
 public:
  explicit Course(const Experiment& experiment)
      : experiment_(experiment),
        world_(settingsOf(experiment.cluster)),
        tensor_(new std::byte[experiment.bytes + 1]),
        signatures_(static_cast<std::size_t>(world_.size())) {}

  Outcome run() {
    play(1);  // plans and layouts are remembered afterwards, and every rank has woken up
    const Counted counted(world_);
    const Time begin = world_.now();
    play(experiment_.calls);
    return counted.outcome(secondsOf(std::ranges::max(ended_) - begin), experiment_.calls);
  }

 private:
  // Each rank makes its next call when the last has ended. Until nothing is left to do.
  void play(int calls) {
    ended_.assign(static_cast<std::size_t>(world_.size()), Time(0));
    unfinished_ = world_.size();
    for (int rank = 0; rank < world_.size(); ++rank) submit(rank, calls);
    world_.finish(experiment_.cluster.everySoOften);
    check(unfinished_ == 0, ErrorKind::Usage, unfinished_, " simulated ranks never ended their calls");
  }

  void submit(int rank, int left) {
    Call call = made(rank);
    call.done = [this, rank, left](const Error& error) {
      if (error) return;
      ended_[static_cast<std::size_t>(rank)] = world_.timeOf(rank);
      if (left > 1) return submit(rank, left - 1);
      --unfinished_;
    };
    world_.submit(rank, std::move(call), ++signatures_[static_cast<std::size_t>(rank)]);
  }

  Call made(int rank) {
    Call call{.pattern = experiment_.pattern, .signature = {}, .done = nullptr};
    const Reduction reduction{.dtype = DType::Float32};
    const std::uint64_t elements = experiment_.bytes / sizeof(float);
    if (experiment_.pattern == Pattern::AllReduce) {
      call.operands.push_back({tensor_.get(), elements, reduction});
      return call;
    }
    const bool gathers = experiment_.pattern == Pattern::AllGather;
    for (int block = 0; block < world_.size(); ++block) {
      const bool isOwn = block == rank;
      call.blocks.push_back({{.from = !gathers || isOwn ? tensor_.get() : nullptr,
                              .to = gathers || isOwn ? tensor_.get() : nullptr,
                              .elements = elements / static_cast<std::uint64_t>(world_.size()),
                              .reduction = reduction}});
    }
    return call;
  }

  const Experiment& experiment_;
  World world_;
  const std::unique_ptr<std::byte[]> tensor_;
  std::vector<Time> ended_;
  std::vector<std::uint64_t> signatures_;  // by rank: how many calls it has made
  int unfinished_ = 0;
};

}  // namespace

Outcome carriedOut(const Experiment& experiment) {
  check(experiment.pattern == Pattern::AllReduce || experiment.pattern == Pattern::ReduceScatter ||
            experiment.pattern == Pattern::AllGather,
        ErrorKind::Usage, "only all-reduces, reduce-scatters and all-gathers are timed");
  check(experiment.calls > 0, ErrorKind::Usage, "there are no calls to time");
  return Course(experiment).run();
}

Outcome carriedOut(const Cluster& cluster, const Model& model, int steps) {
  check(!model.bucketBytes.empty() && steps > 0, ErrorKind::Usage, "there are no buckets or steps to time");
  std::vector<Time> computed;
  double bytes = 0;
  double all = 0;
  for (const std::uint64_t bucket : model.bucketBytes) all += static_cast<double>(bucket);
  for (const std::uint64_t bucket : model.bucketBytes) {
    bytes += static_cast<double>(bucket);
    computed.push_back(ofSeconds(model.forwardSeconds + model.backwardSeconds * bytes / all));
  }
  TrainingSteps training{.bucketBytes = model.bucketBytes,
                         .computed = [&](int, int, int bucket) { return computed[static_cast<std::size_t>(bucket)]; }};
  World world(settingsOf(cluster));
  trained(world, training, world.now(), cluster.everySoOften);
  const Time begin = world.now();
  const Counted counted(world);
  training.steps = steps;
  const Time end = trained(world, training, begin, cluster.everySoOften).back();
  return counted.outcome(secondsOf(end - begin), steps);
}

}  // namespace fairring::simulation
