// The planner's choice for sparse calls, as planner.h declares it.
#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/error.h"
#include "plan/planner.h"
#include "plan/work.h"

namespace fairring {

namespace {

bool hasFewOwners(const Plan& plan) {
  return std::ranges::any_of(plan, [](const Step& step) { return step.shards > 0; });
}

}  // namespace

// What differs between plans: on the way down the topmost level carries contributions, on the way up all rows. What is
// summed of one slice travels of the next, so the longer of the two counts.
double Planner::sparseSeconds(const Candidate& candidate, std::uint64_t bytes, std::uint64_t most) const {
  const int top = topology_.levels().back();
  const CostRow& row = settings_.rows[top];
  double longest = 0;
  for (const Load& load : candidate.loads) {
    StepWork work;
    double steps = 0;
    for (const Step& step : candidate.plan) {
      if (step.level != top) continue;
      work += workOf(step, load, step.verb == Verb::AllGather ? bytes : most);
      ++steps;
    }
    longest = std::max(longest, steps * row.latencySeconds +
                                    static_cast<double>(work.messages) * row.perMessageSeconds +
                                    std::max(static_cast<double>(work.bytes) / row.bytesPerSecond,
                                             static_cast<double>(work.summedBytes) / row.summedBytesPerSecond));
  }
  return longest;
}

// Beside its image and what it receives a slice holds a contribution and, at most levels, a packed sum, none of them
// longer than the image: a third of a dense slice takes no more staging than that.
Choice Planner::chooseSparse(std::uint64_t bytes, std::uint64_t most) const {
  constexpr std::uint64_t kGrainBytes = 64;
  constexpr std::uint64_t kOfDense = 3;
  constexpr std::uint64_t kLargestUncutBytes = 1 << 20;  // in several slices the levels overlap
  const Candidate* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates_) {
    if (candidate.grouped || hasFewOwners(candidate.plan)) continue;
    const double seconds = sparseSeconds(candidate, bytes, most);
    if (seconds > least) continue;
    least = seconds;
    best = &candidate;
  }
  check(best != nullptr, ErrorKind::Configuration, "FAIRRING_TOTAL_MEMORY=", settings_.totalMemoryBytes,
        " B holds no slice of a sparse all_reduce on ", topology_.describe(), ": raise it");
  const std::uint64_t largest = std::max(kGrainBytes, best->largestSliceBytes / kOfDense / kGrainBytes * kGrainBytes);
  const std::uint64_t few = bytes > kLargestUncutBytes ? kSlicesInFlight : 1;
  const std::uint64_t slices = std::max(few, (bytes + largest - 1) / largest);
  const std::uint64_t size = std::max(kGrainBytes, (bytes / slices + kGrainBytes) / kGrainBytes * kGrainBytes);
  return {best->plan, std::min(size, largest), stagingFor(best->plan), stagingOf(*best, size)};
}

}  // namespace fairring
