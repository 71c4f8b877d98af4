#include "plan/planner.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <ranges>
#include <span>
#include <utility>

#include "base/error.h"
#include "plan/work.h"

namespace fairring {

namespace {

constexpr std::uint64_t kGrainBytes = 64;
constexpr std::uint64_t kSmallestSliceBytes = 64 << 10;  // below this, handling messages costs more than the bytes
constexpr std::uint64_t kLargestUncutBytes = 1 << 20;    // larger calls gain from their own slices' overlap
constexpr std::uint64_t kMostSlicesOfUncut = 4;          // more only adds latencies: the pipeline holds four

std::uint64_t ceilOf(std::uint64_t value, std::uint64_t divisor) { return (value + divisor - 1) / divisor; }
std::uint64_t roundUp(std::uint64_t value, std::uint64_t unit) { return ceilOf(value, unit) * unit; }

// The slice sizes worth comparing for a call: in nearly equal slices, as few as possible or somewhat more.
std::vector<std::uint64_t> sliceSizes(std::uint64_t bytes, std::uint64_t largestSliceBytes) {
  const std::uint64_t fewest = std::max<std::uint64_t>(1, ceilOf(bytes, largestSliceBytes));
  const std::uint64_t most = bytes > kLargestUncutBytes ? std::max(fewest, kMostSlicesOfUncut) : fewest;
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t count = fewest; count <= most; ++count) {
    sizes.push_back(std::max(kGrainBytes, roundUp(ceilOf(bytes, count), kGrainBytes)));
  }
  return sizes;
}

}  // namespace

std::string describe(const Plan& plan) {
  std::string text;
  for (const Step& step : plan) {
    if (!text.empty()) text += ' ';
    text += step.verb == Verb::ReduceScatter ? "RS" : step.verb == Verb::AllGather ? "AG" : "AR";
    text += std::to_string(step.level);
  }
  return text;
}

Plan hierarchicalPlan(const std::vector<int>& levels, bool oneShotTop) {
  Plan plan;  // down, each level shrinks what a rank owns; up is the mirror image
  for (const int level : levels) plan.push_back({Verb::ReduceScatter, level});
  for (const int level : levels | std::views::reverse) plan.push_back({Verb::AllGather, level});
  if (oneShotTop && levels.back() > 0) {
    const auto top = plan.begin() + static_cast<std::ptrdiff_t>(levels.size()) - 1;
    top->verb = Verb::AllReduce;
    plan.erase(top + 1);
  }
  return plan;
}

Planner::Planner(Topology topology, PlannerSettings settings)
    : topology_(std::move(topology)), settings_(std::move(settings)), loads_(loadsOf(topology_)) {
  const std::vector<int> levels = topology_.levels();
  check(static_cast<int>(settings_.rows.size()) > levels.back(), ErrorKind::Configuration, "cost rows for ",
        settings_.rows.size(), " levels, but ", topology_.describe(), " need a row for level ", levels.back());
  check(settings_.sliceBytes >= kGrainBytes, ErrorKind::Configuration, "FAIRRING_SLICE_SIZE=", settings_.sliceBytes,
        " B; a slice has at least ", kGrainBytes, " B: raise it");
  for (const bool oneShotTop : {false, true}) {
    const Plan plan = hierarchicalPlan(levels, oneShotTop);
    if (!candidates_.empty() && candidates_.front().plan == plan) continue;
    const std::uint64_t largest = largestSliceBytes(plan);
    if (largest > 0) candidates_.push_back({plan, largest});
  }
  if (candidates_.empty()) {
    const std::uint64_t smallest = std::min(kSmallestSliceBytes, settings_.sliceBytes / kGrainBytes * kGrainBytes);
    const Plan plan = hierarchicalPlan(levels, false);
    throw Failure(makeError(ErrorKind::Configuration, "FAIRRING_TOTAL_MEMORY=", settings_.totalMemoryBytes,
                            " B holds no slice: on ", topology_.describe(), " the smallest, of ", smallest,
                            " B, needs ", roundUp(worstStagingBytes(plan, loads_, smallest), kStagingGrainBytes),
                            " B: raise it"));
  }
}

std::uint64_t Planner::stagingFor(const Plan& plan) const {
  const bool oneMachine = std::ranges::all_of(plan, [](const Step& step) { return step.level == 0; });
  return oneMachine ? std::min(settings_.totalMemoryBytes, kCachedStagingBytes) : settings_.totalMemoryBytes;
}

std::uint64_t Planner::largestSliceBytes(const Plan& plan) const {
  const std::uint64_t most = settings_.sliceBytes / kGrainBytes;  // in grains, as all here
  const std::uint64_t fewest = std::min(kSmallestSliceBytes / kGrainBytes, most);
  for (int inFlight = kSlicesInFlight; inFlight > 0; --inFlight) {
    const std::uint64_t budget = stagingFor(plan) / inFlight / kStagingGrainBytes * kStagingGrainBytes;
    std::uint64_t fits = 0;
    std::uint64_t above = most + 1;
    while (above - fits > 1) {
      const std::uint64_t middle = fits + (above - fits) / 2;
      (worstStagingBytes(plan, loads_, middle * kGrainBytes) <= budget ? fits : above) = middle;
    }
    if (fits >= fewest) return fits * kGrainBytes;
  }
  return 0;
}

StepWork Planner::busiestWork(const Step& step, std::uint64_t sliceBytes) const {
  const CostRow& row = settings_.rows[step.level];
  StepWork busiest;
  double most = 0;
  for (const Load& load : loads_) {
    if (step.level > 0 && load.levels[step.level].owners == 1) continue;
    const StepWork work = workOf(step, load, sliceBytes);
    const double seconds = secondsOf(work, row);
    if (seconds > most) busiest = work;
    most = std::max(most, seconds);
  }
  return busiest;
}

std::vector<double> Planner::levelSeconds(const Plan& plan, std::uint64_t sliceBytes) const {
  std::vector<double> seconds(Topology::kLevels, 0.0);
  for (const Step& step : plan) {
    seconds[step.level] += secondsOf(busiestWork(step, sliceBytes), settings_.rows[step.level]);
  }
  return seconds;
}

double Planner::predictSeconds(const Plan& plan, std::uint64_t bytes, std::uint64_t sliceBytes) const {
  const std::uint64_t slices = std::max<std::uint64_t>(1, ceilOf(bytes, sliceBytes));
  const std::vector<double> full = levelSeconds(plan, std::min(bytes, sliceBytes));
  const std::vector<double> last = levelSeconds(plan, bytes - (slices - 1) * sliceBytes);
  const auto largest = std::ranges::max_element(full) - full.begin();
  double seconds = static_cast<double>(slices - 1) * full[largest] + last[largest];
  for (std::size_t level = 0; level < full.size(); ++level) {
    if (level != static_cast<std::size_t>(largest)) seconds += full[level];
  }
  return seconds;
}

Planner::Sized Planner::bestSize(const Candidate& candidate, std::uint64_t bytes) const {
  Sized best{0, std::numeric_limits<double>::infinity()};
  for (const std::uint64_t sliceBytes : sliceSizes(bytes, candidate.largestSliceBytes)) {
    const double seconds = predictSeconds(candidate.plan, bytes, sliceBytes);
    if (seconds < best.seconds) best = {sliceBytes, seconds};
  }
  return best;
}

Forecast Planner::forecastOf(const Candidate& candidate, std::uint64_t bytes) const {
  const auto [sliceBytes, seconds] = bestSize(candidate, bytes);
  const std::uint64_t slices = std::max<std::uint64_t>(1, ceilOf(bytes, sliceBytes));
  Forecast forecast{.plan = candidate.plan,
                    .sliceBytes = sliceBytes,
                    .slices = slices,
                    .stagingBytes = roundUp(worstStagingBytes(candidate.plan, loads_, sliceBytes), kStagingGrainBytes),
                    .seconds = seconds,
                    .levels = std::vector<StepWork>(Topology::kLevels)};
  for (std::uint64_t slice = 0; slice < slices; ++slice) {
    const std::uint64_t size = std::min(sliceBytes, bytes - slice * sliceBytes);
    for (const Step& step : candidate.plan) forecast.levels[step.level] += busiestWork(step, size);
  }
  return forecast;
}

std::vector<Forecast> Planner::forecast(std::uint64_t bytes) const {
  std::vector<Forecast> forecasts;
  forecasts.reserve(candidates_.size());
  for (const Candidate& candidate : candidates_) forecasts.push_back(forecastOf(candidate, bytes));
  std::ranges::stable_sort(forecasts, [](const Forecast& a, const Forecast& b) {
    return a.seconds != b.seconds ? a.seconds < b.seconds : a.plan.size() < b.plan.size();
  });
  return forecasts;
}

Choice Planner::choose(std::uint64_t elements, std::size_t elementBytes) const {
  const Candidate* best = &candidates_.front();  // the constructor left at least one
  Sized size = bestSize(*best, elements * elementBytes);
  for (const Candidate& candidate : std::span(candidates_).subspan(1)) {
    const Sized here = bestSize(candidate, elements * elementBytes);
    const bool fewerSteps = candidate.plan.size() < best->plan.size();
    if (here.seconds > size.seconds || (here.seconds == size.seconds && !fewerSteps)) continue;
    best = &candidate;
    size = here;
  }
  return {best->plan, size.sliceBytes / elementBytes, stagingFor(best->plan)};
}

}  // namespace fairring
