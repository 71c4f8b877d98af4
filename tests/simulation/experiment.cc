#include "simulation/experiment.h"

#include <algorithm>
#include <functional>
#include <memory>

namespace fairring::simulation {

namespace {

class Course {
 public:
  explicit Course(const Experiment& experiment)
      : experiment_(experiment),
        world_({.places = experiment.places,
                .planner = experiment.planner,
                .costs = experiment.costs,
                .moves = false,
                .sharedMemory = experiment.sharedMemory}),
        tensor_(new std::byte[experiment.bytes + 1]) {}

  Outcome run() {
    play(1);  // plans and layouts are remembered afterwards, and every rank has woken up
    const std::uint64_t messages = world_.post().messages;
    const std::vector<std::uint64_t> bytes = sent();
    const Time begin = world_.now();
    play(experiment_.calls);
    Outcome outcome{.events = world_.events()};
    for (int rank = 0; rank < world_.size(); ++rank) {
      outcome.seconds = std::max(outcome.seconds, secondsOf(ended_[static_cast<std::size_t>(rank)] - begin));
      outcome.mostConnections = std::max(outcome.mostConnections, world_.network().connectionsOf(rank));
    }
    const std::vector<std::uint64_t> bytesAfter = sent();
    for (std::size_t machine = 0; machine < bytes.size(); ++machine)
      outcome.linkBytes = std::max(outcome.linkBytes, static_cast<double>(bytesAfter[machine] - bytes[machine]));
    outcome.messages = static_cast<double>(world_.post().messages - messages) / world_.size();
    for (double* perCall : {&outcome.seconds, &outcome.linkBytes, &outcome.messages}) *perCall /= experiment_.calls;
    return outcome;
  }

 private:
  // Each rank makes its next call when the last has ended. Until nothing is left to do.
  void play(int calls) {
    ended_.assign(static_cast<std::size_t>(world_.size()), Time(0));
    unfinished_ = world_.size();
    for (int rank = 0; rank < world_.size(); ++rank) submit(rank, calls);
    while (world_.step()) {
    }
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
    signatures_.resize(static_cast<std::size_t>(world_.size()));
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

  std::vector<std::uint64_t> sent() const {
    std::vector<std::uint64_t> bytes;
    bytes.reserve(static_cast<std::size_t>(world_.planner().topology().machines()));
    for (int machine = 0; machine < world_.planner().topology().machines(); ++machine)
      bytes.push_back(world_.network().bytesOf(machine));
    return bytes;
  }

  const Experiment experiment_;
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

}  // namespace fairring::simulation
