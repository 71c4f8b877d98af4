#include "simulation/training_steps.h"

#include <algorithm>
#include <memory>

namespace fairring::simulation {

namespace {

class TrainingCourse {
 public:
  TrainingCourse(World& world, const TrainingSteps& training)
      : world_(world),
        training_(training),
        tensor_(new std::byte[std::ranges::max(training.bucketBytes) + 1]),
        ranks_(static_cast<std::size_t>(world.size())),
        ends_(static_cast<std::size_t>(training.steps)) {}

  std::vector<Time> run(Time begin) {
    for (int rank = 0; rank < world_.size(); ++rank) world_.at(begin, [this, rank, begin] { compute(rank, begin); });
    world_.finish();
    for (const Rank& rank : ranks_) {
      check(rank.step == training_.steps, ErrorKind::Usage, "a simulated rank stands still in step ", rank.step, " of ",
            training_.steps);
    }
    return ends_;
  }

 private:
  struct Rank {
    int step = 0;
    std::size_t left = 0;  // buckets of this step
    std::uint64_t calls = 0;
  };

  // The buckets of a step that begins then.
  void compute(int rank, Time begin) {
    Rank& self = ranks_[static_cast<std::size_t>(rank)];
    self.left = training_.bucketBytes.size();
    for (std::size_t bucket = 0; bucket < training_.bucketBytes.size(); ++bucket) {
      const Time when = begin + training_.computed(rank, self.step, static_cast<int>(bucket));
      world_.at(when, [this, rank, bucket] { reduce(rank, bucket); });
    }
  }

  void reduce(int rank, std::size_t bucket) {
    Call call{.signature = {.text = concat("all_reduce SUM of bucket ", bucket)}, .done = nullptr};
    call.operands.push_back(
        {tensor_.get(), training_.bucketBytes[bucket] / sizeof(float), Reduction{.dtype = DType::Float32}});
    call.done = [this, rank](const Error& error) {
      if (!error) isReduced(rank);
    };
    world_.submit(rank, std::move(call), ++ranks_[static_cast<std::size_t>(rank)].calls);
  }

  void isReduced(int rank) {
    Rank& self = ranks_[static_cast<std::size_t>(rank)];
    if (--self.left > 0) return;
    const Time now = world_.timeOf(rank);
    Time& end = ends_[static_cast<std::size_t>(self.step)];
    end = std::max(end, now);
    if (++self.step < training_.steps) compute(rank, now);
  }

  World& world_;
  const TrainingSteps& training_;
  const std::unique_ptr<std::byte[]> tensor_;
  std::vector<Rank> ranks_;
  std::vector<Time> ends_;
};

}  // namespace

std::vector<Time> trained(World& world, const TrainingSteps& training, Time begin) {
  check(training.steps > 0 && !training.bucketBytes.empty(), ErrorKind::Usage, "a training of ", training.steps,
        " steps and ", training.bucketBytes.size(), " buckets has nothing to simulate");
  return TrainingCourse(world, training).run(begin);
}

}  // namespace fairring::simulation
