// The planner's choices for sparse calls, as planner.h declares them; docs/algorithms.md derives them.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "plan/grain.h"
#include "plan/partition.h"
#include "plan/planner.h"

namespace fairring {

namespace {

constexpr double kSecondsPerKey = 10e-9;  // on every rank, for each row that any rank has
constexpr double kWorseThanDense = 1.1;   // that a call may be, if its ranks share their rows as badly as can be

}  // namespace

// What differs between plans: on the way down the topmost level carries contributions, on the way up all rows. What is
// summed of one slice travels of the next, so the longer of the two counts.
double Planner::sparseSeconds(const Candidate& candidate, const Topmost& carried) const {
  const int top = leveled().levels().back();
  const CostRow& row = settings_.rows[networkOf(candidate, top)];
  double longest = 0;
  for (const Load& load : candidate.loads) {
    StepWork work;
    double steps = 0;
    for (const Step& step : candidate.plan) {
      if (step.level != top) continue;
      work += load.work(step, static_cast<std::uint64_t>(step.verb == Verb::AllGather ? carried.all : carried.most));
      ++steps;
    }
    longest =
        std::max(longest, steps * row.latencySeconds + static_cast<double>(work.messages) * row.perMessageSeconds +
                              std::max(static_cast<double>(work.bytes) / row.bytesPerSecond,
                                       static_cast<double>(work.summedBytes) / row.summedBytesPerSecond));
  }
  return longest;
}

std::pair<const Planner::Candidate*, double> Planner::bestSparse(const Topmost& carried) const {
  std::pair<const Candidate*, double> best(nullptr, std::numeric_limits<double>::infinity());
  for (const Candidate& candidate : candidates_) {
    if (candidate.grouped != topology_.onlyInGroups()) continue;
    const double seconds = sparseSeconds(candidate, carried);
    if (seconds <= best.second) best = {&candidate, seconds};
  }
  check(best.first != nullptr, ErrorKind::Configuration, "FAIRRING_TOTAL_MEMORY=", settings_.totalMemoryBytes,
        " B holds no slice of a sparse all_reduce on ", topology_.describe(), ": raise it");
  return best;
}

// Beside its image and what it receives a slice holds a contribution and, at most levels, a packed sum, none of them
// longer than the image: a third of a dense slice takes no more staging than that.
PlanChoice Planner::chooseSparse(std::uint64_t bytes, std::uint64_t most) const {
  constexpr std::uint64_t kOfDense = 3;
  constexpr std::uint64_t kLargestUncutBytes = 256 << 10;  // in several slices the levels overlap
  constexpr std::uint64_t kCutBytes = 1 << 20;             // what comes before the first and after the last does not
  constexpr std::uint64_t kMostCuts = 16;
  const Candidate& best = *bestSparse({static_cast<double>(bytes), static_cast<double>(most)}).first;
  const std::uint64_t largest = std::max(kGrainBytes, best.largestSliceBytes / kOfDense / kGrainBytes * kGrainBytes);
  const std::uint64_t few =
      bytes > kLargestUncutBytes ? std::clamp<std::uint64_t>(bytes / kCutBytes, kSlicesInFlight, kMostCuts) : 1;
  const std::uint64_t slices = std::max(few, ceilOf(bytes, largest));
  const std::uint64_t size = std::max(kGrainBytes, (bytes / slices + kGrainBytes) / kGrainBytes * kGrainBytes);
  return {best.plan, std::min(size, largest), stagingFor(best.plan), stagingOf(best, size)};
}

Planner::Topmost Planner::topmost(const std::vector<std::uint64_t>& rowsByRank,
                                  const std::function<double(double, double)>& united, const RowSpace& space) const {
  const int top = leveled().levels().back();
  std::vector<double> members(rowsByRank.size());  // by rank, machine or site, of which there are no more
  double all = 0;
  for (std::size_t rank = 0; rank < rowsByRank.size(); ++rank) {
    const auto rows = static_cast<double>(rowsByRank[rank]);
    const int itself = static_cast<int>(rank);
    double& member = members[static_cast<std::size_t>(top == 0 ? itself : groupOf(leveled(), top - 1, itself))];
    member = united(member, rows);
    all = united(all, rows);
  }
  const auto rowBytes = static_cast<double>(space.rowBytes);
  return {all * rowBytes, std::ranges::max(members) * rowBytes};
}

KeyForm Planner::keyForm(const RowSpace& space, const std::vector<std::uint64_t>& rowsByRank) const {
  const std::uint64_t keys = std::reduce(rowsByRank.begin(), rowsByRank.end());
  const std::uint64_t listBytes = keys * space.keyBytes();
  // A block of all rows is never shorter than contributions, so it pays only where its keys are.
  if (space.bitBytes() >= listBytes) return KeyForm::Lists;
  const std::uint64_t bitBytes = space.bitBytes() * rowsByRank.size();
  const KeyForm packed = bitBytes < listBytes ? KeyForm::BitsByRank : KeyForm::Lists;

  const auto rows = static_cast<double>(space.rows);
  // Drawn by each rank without regard to the others; and as different as can be.
  const Topmost drawn = topmost(rowsByRank, [rows](double a, double b) { return a + b - a * b / rows; }, space);
  const Topmost apart = topmost(rowsByRank, [rows](double a, double b) { return std::min(a + b, rows); }, space);
  const auto denseSeconds = [this](double bytes) { return bestSparse({bytes, bytes}).second; };
  const double keySeconds =
      denseSeconds(static_cast<double>(std::min(bitBytes, listBytes))) + kSecondsPerKey * static_cast<double>(keys);
  const double blockKeySeconds = denseSeconds(static_cast<double>(space.bitBytes())) +
                                 kSecondsPerKey * static_cast<double>(std::min(keys, space.rows));
  const auto packedSeconds = [&](const Topmost& carried) { return keySeconds + bestSparse(carried).second; };
  const auto blockSeconds = [&](const Topmost& carried) { return blockKeySeconds + denseSeconds(carried.all); };
  const bool bounded =
      packedSeconds(apart) <= kWorseThanDense * denseSeconds(rows * static_cast<double>(space.rowBytes));
  const bool pays =
      packedSeconds(drawn) <= blockSeconds(drawn) && (bounded || packedSeconds(apart) <= blockSeconds(apart));
  return pays ? packed : KeyForm::BitsOfAll;
}

}  // namespace fairring
