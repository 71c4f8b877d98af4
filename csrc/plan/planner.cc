#include "plan/planner.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "plan/grain.h"
#include "plan/partition.h"

namespace fairring {

namespace {

constexpr std::uint64_t kSmallestSliceBytes = 64 << 10;  // below this, handling messages costs more than the bytes
constexpr std::uint64_t kLargestUncutBytes = 1 << 20;    // larger calls gain from their own slices' overlap
constexpr std::uint64_t kMostSlicesOfUncut = 4;          // more only adds latencies: the pipeline holds four
constexpr std::uint64_t kMostSlicesAcrossSites = 16;  // where latencies do not add up, and the fast levels' fill does
constexpr std::uint64_t kMostSlicesPassedOn = 64;     // where each owner waits for a whole slice before it sends it
constexpr std::uint64_t kOverlappedPartBytes = 64 << 10;  // of a slice that only its call's other slices overlap
constexpr std::uint64_t kMostOverlappedSlices = 16;
// In groups of machines three steps share a link, and it takes at least so many slices to fill it. Slices are about so
// large, or larger if their smallest part would have fewer bytes (docs/algorithms.md).
constexpr std::uint64_t kLeastGroupedSlices = 8;
constexpr std::uint64_t kGroupedSliceBytes = 3 << 20;
constexpr std::uint64_t kGroupedPartBytes = 96 << 10;
// The most that a rank reads from the others of its machine in one step. To read more takes longer than to wait for
// them twice.
constexpr std::uint64_t kMostOneShotBytes = 64 << 10;
constexpr double kCoreBytesPerSecond = 1.25e9;  // each way at once, by the one core of a rank: assumed, of TCP
constexpr double kLeastCutsShare = 0.9;         // of the predicted time: what is in no cost row makes good the rest
constexpr double kCoreShare = 0.97;             // of what it does for one slice, no other slice overlaps: assumed

// The size of each of so many nearly equal slices.
std::uint64_t sizeOf(std::uint64_t bytes, std::uint64_t slices, std::uint64_t grainBytes) {
  return std::max(grainBytes, roundUp(ceilOf(bytes, slices), grainBytes));
}

int mostOwners(const Topology& topology, int level) {
  std::size_t most = 1;
  for (int group = 0; group < groupsAt(topology, level); ++group) {
    most = std::max(most, membersOf(topology, level, group).size());
  }
  return static_cast<int>(most);
}

// How often what the last owner gets has been passed on.
int hopsOf(const Step& relay, int owners) {
  int hops = 0;
  for (std::int64_t reached = 1, last = 1; reached < owners; ++hops) reached += last *= relay.passedOnTo;
  return std::max(hops, 1);
}

double secondsOf(const StepWork& work, const CostRow& row) {
  return row.latencySeconds + row.perMessageSeconds * static_cast<double>(work.messages) +
         static_cast<double>(work.bytes) / row.bytesPerSecond +
         static_cast<double>(work.summedBytes) / row.summedBytesPerSecond;
}

// The cost of the core that handles messages, copies and sums; bytes pass no faster than it can. Within a machine ranks
// only wait for one another, and on one of a single rank, which has no messages, tensors need no copies.
double coreSecondsOf(const StepWork& work, const CostRow& row, int network) {
  const double sums = static_cast<double>(work.summedBytes) / row.summedBytesPerSecond;
  const auto bytes = static_cast<double>(work.bytes);
  if (network == 0) return work.messages == 0 ? 0 : bytes / row.bytesPerSecond + sums;
  return row.perMessageSeconds * static_cast<double>(work.messages) +
         bytes / std::max(row.bytesPerSecond, kCoreBytesPerSecond) + sums;
}

// The work of the rank that takes longest.
StepWork busiest(const std::vector<Load>& loads, const Step& step, std::uint64_t sliceBytes, const CostRow& row) {
  StepWork most;
  double longest = 0;
  for (const Load& load : loads) {
    if (step.level > 0 && load.levels[step.level].owners == 1) continue;
    const StepWork here = load.work(step, sliceBytes);
    const double seconds = secondsOf(here, row);
    if (seconds > longest) most = here;
    longest = std::max(longest, seconds);
  }
  return most;
}

// Where there are several sites, which is never in groups of machines, any call may cross between them in blocks.
std::uint64_t worstStaging(const Plan& plan, const std::vector<Load>& loads, bool grouped, std::uint64_t sliceBytes) {
  const bool crossesSites = !grouped && std::ranges::any_of(loads, [](const Load& load) {
    return load.levels[Topology::kSiteLevel].owners > 1;
  });
  return worstStagingBytes(plan, loads, sliceBytes, crossesSites ? kMostGrainsTogether : 1);
}

}  // namespace

std::uint64_t equalShardsGrainBytes(const Topology& topology) {
  std::uint64_t ranks = 1;
  for (int machine = 0; machine < topology.machines(); ++machine)
    ranks = std::lcm(ranks, static_cast<std::uint64_t>(topology.ranksOf(machine).size()));
  return ranks * kGrainBytes;
}

Planner::Planner(Topology topology, PlannerSettings settings)
    : topology_(std::move(topology)),
      grouped_(topology_.groups() == 0 ? std::nullopt : std::optional(topology_.inGroups())),
      levels_(topologyOf(true).levels()),
      settings_(std::move(settings)),
      blocks_(leveled()) {
  const int top = topology_.levels().back();
  check(static_cast<int>(settings_.rows.size()) > top, ErrorKind::Configuration, "cost rows for ",
        settings_.rows.size(), " levels, but ", topology_.describe(), " need a row for level ", top);
  check(settings_.sliceBytes >= kGrainBytes, ErrorKind::Configuration, "FAIRRING_SLICE_SIZE=", settings_.sliceBytes,
        " B; a slice has at least ", kGrainBytes, " B: raise it");
  if (!topology_.onlyInGroups()) addCandidates(false);
  if (grouped_) addCandidates(true);
  const std::vector<int> levels = leveled().levels();
  if (candidates_.empty()) {
    const std::uint64_t smallest = std::min(kSmallestSliceBytes, settings_.sliceBytes / kGrainBytes * kGrainBytes);
    const std::uint64_t needed =
        worstStaging(hierarchicalPlan(levels, false), loadsOf(leveled()), topology_.onlyInGroups(), smallest);
    throw Failure(makeError(ErrorKind::Configuration, "FAIRRING_TOTAL_MEMORY=", settings_.totalMemoryBytes,
                            " B holds no slice: on ", topology_.describe(), " the smallest, of ", smallest,
                            " B, needs ", roundUp(needed, kStagingGrainBytes), " B: raise it"));
  }
  const std::vector<Load> loads = loadsOf(leveled());
  for (const Pattern pattern : {Pattern::ReduceScatter, Pattern::AllGather, Pattern::Scatter, Pattern::Gather})
    others_[pattern] = {ofBlocks(pattern, loads)};
  others_[Pattern::Broadcast] = ofBroadcasts(loads);
  Candidate reduce{.plan = planOf(Pattern::Reduce, levels), .grouped = topology_.onlyInGroups(), .loads = loads};
  reduce.largestSliceBytes = largestSliceBytes(reduce);
  others_[Pattern::Reduce] = {std::move(reduce)};
  if (levels.back() > 0 || !settings_.coreCopies) return;
  Candidate oneShot{.plan = hierarchicalPlan(levels, true), .grouped = false, .loads = loads};
  oneShot.largestSliceBytes = largestSliceBytes(oneShot);
  others_[Pattern::AllReduce] = {std::move(oneShot)};
}

// A chain of owners carries the fewest bytes, a star has the fewest steps behind one another.
std::vector<Planner::Candidate> Planner::ofBroadcasts(const std::vector<Load>& loads) const {
  const std::vector<int> levels = leveled().levels();
  const int others = levels.back() == 0 ? 1 : mostOwners(leveled(), levels.back()) - 1;
  std::vector<Candidate> candidates;
  for (int passedOnTo = 1; passedOnTo <= others;
       passedOnTo = passedOnTo < others ? std::min(2 * passedOnTo, others) : others + 1) {
    Candidate& candidate = candidates.emplace_back();
    candidate = {.plan = broadcastPlan(levels, passedOnTo), .grouped = topology_.onlyInGroups(), .loads = loads};
    candidate.largestSliceBytes = largestSliceBytes(candidate);
  }
  return candidates;
}

// Like largestSliceBytes(), except that a slice has at least a grain of each block, and the areas for others'
// contributions are counted in blocks.
Planner::Candidate Planner::ofBlocks(Pattern pattern, std::vector<Load> loads) const {
  const std::uint64_t receivedBlocks = pattern == Pattern::ReduceScatter ? blocks_.mostReceived() : 0;
  Candidate half{.plan = planOf(pattern, leveled().levels()),
                 .grouped = topology_.onlyInGroups(),
                 .loads = std::move(loads),
                 .receivedBlocks = receivedBlocks};
  const auto world = static_cast<std::uint64_t>(topology_.world());
  const std::uint64_t most = std::max(kGrainBytes, settings_.sliceBytes / world / kGrainBytes * kGrainBytes);
  const std::uint64_t fewest = std::min(most, roundUp(ceilOf(kSmallestSliceBytes, world), kGrainBytes));
  std::uint64_t stretch = 0;
  for (int inFlight = kSlicesInFlight; inFlight > 0 && stretch < fewest; --inFlight) {
    const std::uint64_t budget = stagingFor(half.plan) / inFlight / kStagingGrainBytes * kStagingGrainBytes;
    stretch = std::min(most, budget / (world + receivedBlocks) / kGrainBytes * kGrainBytes);
  }
  check(stretch > 0, ErrorKind::Configuration, "FAIRRING_TOTAL_MEMORY=", settings_.totalMemoryBytes,
        " B holds no slice of a block for each rank: on ", topology_.describe(), " the smallest needs ",
        roundUp((world + receivedBlocks) * kGrainBytes, kStagingGrainBytes), " B: raise it");
  half.largestSliceBytes = stretch * world;
  return half;
}

PlanChoice Planner::choose(Pattern pattern, std::uint64_t bytes) const {
  if (pattern == Pattern::AllReduce) {
    return oneShotOf(bytes) != nullptr ? best(others_.at(pattern), bytes) : choose(bytes);
  }
  const std::vector<Candidate>& candidates = others_.at(pattern);
  return isByRank(pattern) ? chooseOfBlocks(candidates.front(), bytes) : best(candidates, bytes);
}

// A small dense all-reduce within a machine. Null: there is none of that size.
const Planner::Candidate* Planner::oneShotOf(std::uint64_t bytes) const {
  const auto found = others_.find(Pattern::AllReduce);
  const auto others = static_cast<std::uint64_t>(std::max(1, topology_.world() - 1));
  return found == others_.end() || bytes * others > kMostOneShotBytes ? nullptr : &found->second.front();
}

PlanChoice Planner::chooseOfBlocks(const Candidate& candidate, std::uint64_t blockBytes) const {
  const auto world = static_cast<std::uint64_t>(topology_.world());
  const std::uint64_t best = bestSize(candidate, blockBytes * world).sliceBytes;
  const std::uint64_t stretch =
      std::min(candidate.largestSliceBytes / world, std::max(kGrainBytes, roundUp(ceilOf(best, world), kGrainBytes)));
  return {candidate.plan, stretch, stagingFor(candidate.plan),
          roundUp((world + candidate.receivedBlocks) * stretch, kStagingGrainBytes)};
}

// Slices of equal cells fill what staging there is for one; where cells are unequal, it follows the largest.
PlanChoice Planner::chooseAllToAll(std::uint64_t cellBytes) const {
  const Plan plan = planOf(Pattern::AllToAll, leveled().levels());
  const auto world = static_cast<std::uint64_t>(topology_.world());
  const std::uint64_t rounding = kGrainBytes * 2 * (1 + plan.size());  // each part begins on a grain
  const std::uint64_t staging = stagingFor(plan);
  const std::uint64_t cut = world * cellBytes > kLargestUncutBytes ? kMostSlicesOfUncut : 1;
  std::uint64_t stretch = std::min(ceilOf(cellBytes, cut), settings_.sliceBytes / world);
  stretch = std::max(kGrainBytes, roundUp(stretch, kGrainBytes));
  for (std::uint64_t inFlight = kSlicesInFlight; inFlight > 0; --inFlight) {
    const std::uint64_t budget = staging / inFlight;
    const std::uint64_t most =
        budget < rounding ? 0 : (budget - rounding) / blocks_.mostCells() / kGrainBytes * kGrainBytes;
    if (most == 0 && inFlight > 1) continue;
    check(most > 0, ErrorKind::Configuration, "FAIRRING_TOTAL_MEMORY=", settings_.totalMemoryBytes,
          " B holds no slice of an all-to-all: on ", topology_.describe(), " the smallest needs ",
          roundUp(blocks_.mostCells() * kGrainBytes + rounding, kStagingGrainBytes), " B: raise it");
    stretch = std::min(stretch, most);
    break;
  }
  return {plan, stretch, staging, roundUp(blocks_.mostCells() * stretch + rounding, kStagingGrainBytes)};
}

void Planner::addCandidates(bool grouped) {
  const Topology& topology = topologyOf(grouped);
  const std::vector<int> levels = topology.levels();
  for (const bool oneShotTop : {false, true}) {
    if (oneShotTop && levels.back() == 0) continue;  // within a machine: oneShotOf()
    Candidate candidate{.plan = hierarchicalPlan(levels, oneShotTop), .grouped = grouped, .loads = loadsOf(topology)};
    candidate.largestSliceBytes = largestSliceBytes(candidate);
    if (candidate.largestSliceBytes > 0) candidates_.push_back(std::move(candidate));
  }
}

const Planner::Candidate& Planner::candidateOf(const Plan& plan) const {
  const auto found = std::ranges::find(candidates_, plan, &Candidate::plan);
  if (found != candidates_.end()) return *found;
  for (const auto& [pattern, candidates] : others_) {
    const auto other = std::ranges::find(candidates, plan, &Candidate::plan);
    if (other != candidates.end()) return *other;
  }
  throw std::out_of_range("no candidate: " + describe(plan));
}

Layout Planner::layoutOf(const Plan& plan, int rank, std::uint64_t bytes) const {
  return layoutSlice(topologyOf(candidateOf(plan).grouped), rank, bytes);
}

// Groups of machines connect nobody whom the rails of their machines do not.
std::set<int> Planner::peersOf(int rank) const { return fairring::peersOf(leveled(), rank); }

std::uint64_t Planner::stagingFor(const Plan& plan) const {
  const bool oneMachine = std::ranges::all_of(plan, [](const Step& step) { return step.level == 0; });
  return oneMachine ? std::min(settings_.totalMemoryBytes, kCachedStagingBytes) : settings_.totalMemoryBytes;
}

std::uint64_t Planner::largestSliceBytes(const Candidate& candidate) const {
  const std::uint64_t most = settings_.sliceBytes / kGrainBytes;  // in grains, as all here
  const std::uint64_t fewest = std::min(kSmallestSliceBytes / kGrainBytes, most);
  for (int inFlight = kSlicesInFlight; inFlight > 0; --inFlight) {
    const std::uint64_t budget = stagingFor(candidate.plan) / inFlight / kStagingGrainBytes * kStagingGrainBytes;
    std::uint64_t fits = 0;
    std::uint64_t above = most + 1;
    while (above - fits > 1) {
      const std::uint64_t middle = fits + (above - fits) / 2;
      const std::uint64_t worst =
          worstStaging(candidate.plan, candidate.loads, candidate.grouped, middle * kGrainBytes);
      (worst <= budget ? fits : above) = middle;
    }
    const std::uint64_t largest = fits * kGrainBytes;
    const std::uint64_t whole = largest / settings_.sliceGrainBytes * settings_.sliceGrainBytes;
    if (fits >= fewest) return whole > 0 ? whole : largest;
  }
  return 0;
}

std::uint64_t Planner::stagingOf(const Candidate& candidate, std::uint64_t sliceBytes) {
  return roundUp(worstStaging(candidate.plan, candidate.loads, candidate.grouped, sliceBytes), kStagingGrainBytes);
}

// Steps of a level follow one another. The way to another site is long, and slices are on it one behind the other: its
// latency is waited for once, if staging holds enough.
std::vector<Planner::LevelSeconds> Planner::levelSeconds(const Candidate& candidate, std::uint64_t sliceBytes) const {
  const std::uint64_t staging = stagingOf(candidate, sliceBytes);
  const std::uint64_t fitting = settings_.totalMemoryBytes / std::max(staging, kStagingGrainBytes);
  const std::uint64_t inFlight = std::max<std::uint64_t>(1, fitting);
  std::vector<LevelSeconds> levels(Topology::kLevels);
  std::vector<double> shared(Topology::kLevels);  // of the slowest rank's time, by slices on their way
  for (const Step& step : candidate.plan) {
    const int network = networkOf(candidate, step.level);
    const CostRow& row = settings_.rows[network];
    const StepWork work = busiest(candidate.loads, step, sliceBytes, row);
    const double slowest = secondsOf(work, row);
    levels[network].slowest += slowest;
    if (network > 0 || settings_.coreCopies) levels[network].core += coreSecondsOf(work, row, network);
    if (step.verb == Verb::Relay) {
      const int owners = mostOwners(topologyOf(candidate.grouped), step.level);
      levels[network].passedOn = slowest * (hopsOf(step, owners) - 1);
    }
    if (network == Topology::kSiteLevel) shared[network] += row.latencySeconds;
  }
  for (std::size_t level = 0; level < levels.size(); ++level) {
    LevelSeconds& here = levels[level];
    here.throughput =
        std::max(here.slowest - shared[level], (here.slowest + here.passedOn) / static_cast<double>(inFlight));
  }
  return levels;
}

double Planner::predictSeconds(const Plan& plan, std::uint64_t bytes, std::uint64_t sliceBytes) const {
  return predict(candidateOf(plan), bytes, sliceBytes);
}

// Levels work on different slices at the same time, but one core handles a rank's messages, copies and sums.
double Planner::predict(const Candidate& candidate, std::uint64_t bytes, std::uint64_t sliceBytes) const {
  const std::uint64_t slices = std::max<std::uint64_t>(1, ceilOf(bytes, sliceBytes));
  const std::vector<LevelSeconds> full = levelSeconds(candidate, std::min(bytes, sliceBytes));
  const std::vector<LevelSeconds> last = levelSeconds(candidate, bytes - (slices - 1) * sliceBytes);
  const auto largest = std::ranges::max_element(full, {}, &LevelSeconds::throughput) - full.begin();
  double core = 0;
  for (const LevelSeconds& level : full) core += kCoreShare * level.core;
  double seconds = static_cast<double>(slices - 1) * std::max(full[largest].throughput, core) + last[largest].slowest;
  for (std::size_t level = 0; level < full.size(); ++level) {
    if (level != static_cast<std::size_t>(largest)) seconds += full[level].slowest;
    seconds += last[level].passedOn;
  }
  return seconds;
}

// Into how many slices it may be worth cutting a call that would fit one.
std::uint64_t Planner::cutsOf(const Candidate& candidate, std::uint64_t bytes) const {
  const bool passesOn = std::ranges::find(candidate.plan, Verb::Relay, &Step::verb) != candidate.plan.end();
  if (passesOn) return std::min(kMostSlicesPassedOn, bytes / kSmallestSliceBytes);
  if (bytes <= kLargestUncutBytes) return 1;
  return topology_.sites() > 1 ? kMostSlicesAcrossSites : kMostSlicesOfUncut;
}

// A link is idle from when a slice's last part has been sent until the last one of the other machines has come, which
// is the later the more of them send at once. Other slices fill it. No cost row knows of it, so the prediction does not
// either.
std::uint64_t Planner::leastCutsOf(const Candidate& candidate, std::uint64_t bytes) const {
  const auto machines = static_cast<std::uint64_t>(topology_.machines());
  if (machines < 3 || topology_.sites() > 1) return 1;
  const std::vector<int> levels = topologyOf(candidate.grouped).levels();
  const bool inShards = candidate.plan == hierarchicalPlan(levels, false);
  if (candidate.grouped) {
    if (!paysInGroups(bytes) || (!inShards && candidate.plan != hierarchicalPlan(levels, true))) return 1;
    return std::max(kLeastGroupedSlices, bytes / std::max(machines * kGroupedPartBytes, kGroupedSliceBytes));
  }
  if (!inShards || topology_.machines() != topology_.world()) return 1;
  const std::uint64_t cuts = bytes / (machines * kOverlappedPartBytes);
  return cuts > kMostOverlappedSlices ? 1 : std::max<std::uint64_t>(1, cuts);
}

// Fewer machines then send to one at once. Without groups a call takes longer than predicted, by as much as that costs.
bool Planner::paysInGroups(std::uint64_t bytes) const {
  const auto machines = static_cast<std::uint64_t>(topology_.machines());
  return topology_.groups() > 0 && bytes >= kLeastGroupedSlices * machines * kGroupedPartBytes;
}

Planner::Sized Planner::bestSize(const Candidate& candidate, std::uint64_t bytes) const {
  Sized best{0, std::numeric_limits<double>::infinity()};
  const std::uint64_t usual = std::max<std::uint64_t>(1, ceilOf(bytes, candidate.largestSliceBytes));
  const std::uint64_t most = std::max(usual, cutsOf(candidate, bytes));
  for (std::uint64_t slices = fewestSlices(candidate, bytes, usual); slices <= most; ++slices) {
    const std::uint64_t cut = sizeOf(bytes, slices, settings_.sliceGrainBytes);
    const std::uint64_t sliceBytes = slices < usual ? cut : std::min(candidate.largestSliceBytes, cut);
    const double seconds = predict(candidate, bytes, sliceBytes);
    if (seconds < best.seconds) best = {sliceBytes, seconds};
  }
  if (!candidate.grouped && paysInGroups(bytes)) best.seconds /= kLeastCutsShare;
  const std::uint64_t least = sizeOf(bytes, leastCutsOf(candidate, bytes), settings_.sliceGrainBytes);
  if (least >= best.sliceBytes) return best;
  const double seconds = predict(candidate, bytes, least);
  return {least, candidate.grouped ? seconds : std::max(best.seconds, kLeastCutsShare * seconds)};
}

// Larger slices than usual are none too large where staging holds the whole call at once.
std::uint64_t Planner::fewestSlices(const Candidate& candidate, std::uint64_t bytes, std::uint64_t usual) const {
  std::uint64_t fewest = usual;
  for (std::uint64_t fewer = fewest - 1; fewer > 0; fewest = fewer--) {
    const std::uint64_t sliceBytes = sizeOf(bytes, fewer, settings_.sliceGrainBytes);
    if (sliceBytes > settings_.sliceBytes || fewer * stagingOf(candidate, sliceBytes) > stagingFor(candidate.plan))
      break;
  }
  return fewest;
}

Forecast Planner::forecastOf(const Candidate& candidate, std::uint64_t bytes) const {
  const auto [sliceBytes, seconds] = bestSize(candidate, bytes);
  const std::uint64_t slices = std::max<std::uint64_t>(1, ceilOf(bytes, sliceBytes));
  Forecast forecast{.plan = candidate.plan,
                    .sliceBytes = sliceBytes,
                    .slices = slices,
                    .stagingBytes = stagingOf(candidate, sliceBytes),
                    .seconds = seconds,
                    .levels = std::vector<StepWork>(Topology::kLevels)};
  for (std::uint64_t slice = 0; slice < slices; ++slice) {
    const std::uint64_t size = std::min(sliceBytes, bytes - slice * sliceBytes);
    for (const Step& step : candidate.plan) {
      const CostRow& row = settings_.rows[networkOf(candidate, step.level)];
      forecast.levels[step.level] += busiest(candidate.loads, step, size, row);
    }
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
  if (const Candidate* const oneShot = oneShotOf(bytes))
    forecasts.insert(forecasts.begin(), forecastOf(*oneShot, bytes));
  return forecasts;
}

PlanChoice Planner::choose(std::uint64_t bytes) const { return best(candidates_, bytes); }

// The best of the candidates for so many bytes.
PlanChoice Planner::best(const std::vector<Candidate>& candidates, std::uint64_t bytes) const {
  const Candidate* best = &candidates.front();
  Sized size = bestSize(*best, bytes);
  for (const Candidate& candidate : std::span(candidates).subspan(1)) {
    const Sized here = bestSize(candidate, bytes);
    const bool fewerSteps = candidate.plan.size() < best->plan.size();
    if (here.seconds > size.seconds || (here.seconds == size.seconds && !fewerSteps)) continue;
    best = &candidate;
    size = here;
  }
  return {best->plan, size.sliceBytes, stagingFor(best->plan), stagingOf(*best, size.sliceBytes)};
}

}  // namespace fairring
