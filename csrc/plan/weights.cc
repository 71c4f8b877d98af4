#include "plan/weights.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "plan/partition.h"

namespace fairring {

namespace {

constexpr std::uint64_t kFull = 64;  // the relative rate of most members
constexpr std::uint64_t kTimeScale = 1 << 20;
constexpr std::uint32_t kPartsOfAWeight = 1 << 20;  // that the machines of a site share

// In hundredths. The first is of the time with the best weights and makes them worth it; the second is of the present
// time and makes equal shards no worse. Under weights that are not the best any more the links carry unlike, and rates
// are less certain.
constexpr std::uint64_t kWorthLeavingEqual = 120;
constexpr std::uint64_t kWorthAnother = 110;
constexpr std::uint64_t kWorthReturning = 105;
constexpr std::uint64_t kFaster = 103;   // hundredths of the speed with equal shards
constexpr std::uint64_t kRiseMore = 10;  // hundredths, where equal shards were returned to in vain
constexpr int kSoon = 8;
constexpr int kSeenInARow = 2;

}  // namespace

int weightedLevel(const Topology& topology) { return topology.sites() == 1 ? 1 : Topology::kSiteLevel; }

int weightedMembers(const Topology& topology) { return groupsAt(topology, weightedLevel(topology) - 1); }

int weightedMemberOf(const Topology& topology, int rank) {
  return groupOf(topology, weightedLevel(topology) - 1, rank);
}

// The machines of a site own equal parts of what it owns.
std::vector<std::uint32_t> partsOfMachines(const Topology& topology, const Weights& weights) {
  if (weights.empty() || topology.sites() == 1) return weights;
  std::vector<std::uint32_t> parts(static_cast<std::size_t>(topology.machines()));
  for (int machine = 0; machine < topology.machines(); ++machine) {
    const int site = topology.siteOf(machine);
    const auto machines = static_cast<std::uint32_t>(topology.machinesOf(site).size());
    parts[static_cast<std::size_t>(machine)] = kPartsOfAWeight * weights[static_cast<std::size_t>(site)] / machines;
  }
  return parts;
}

std::vector<std::uint64_t> relativeRates(const LinkRates& rates) {
  const std::size_t members = rates.size();
  std::vector<std::uint64_t> slower(members);
  for (std::size_t member = 0; member < members; ++member) {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    for (std::size_t other = 0; other < members; ++other) {
      sent += rates[member][other];
      received += rates[other][member];
    }
    slower[member] = std::min(sent, received);
    if (slower[member] == 0) return {};
  }
  std::vector<std::uint64_t> sorted = slower;
  std::ranges::sort(sorted, std::greater());
  const std::uint64_t most = sorted[(members - 1) / 2];
  for (std::uint64_t& rate : slower) {
    rate = std::max<std::uint64_t>(
        1, static_cast<std::uint64_t>(static_cast<unsigned __int128>(std::min(rate, most)) * kFull / most));
  }
  return slower;
}

// All members that own something are through at the same time T, the others before: of the n fastest, whose rates sum
// to S, each owns ((M-2+n) rate / S - 1) / (M-2). n is the most of which all own something.
Weights balanced(std::span<const std::uint64_t> relative) {
  const std::size_t members = relative.size();
  if (members < static_cast<std::size_t>(kFewestWeighted)) return {};
  std::vector<std::uint64_t> sorted(relative.begin(), relative.end());
  std::ranges::sort(sorted, std::greater());
  if (sorted.front() == sorted.back()) return {};
  std::size_t owners = members;
  std::uint64_t sum = std::reduce(sorted.begin(), sorted.end());
  const auto over = [&](std::uint64_t rate) {  // what it owns, times sum * (M-2); nothing where that is not positive
    const std::uint64_t carried = (members - 2 + owners) * rate;
    return carried > sum ? carried - sum : 0;
  };
  while (over(sorted[owners - 1]) == 0) sum -= sorted[--owners];

  Weights weights(members);
  for (std::size_t member = 0; member < members; ++member)
    weights[member] = static_cast<std::uint32_t>(kWholeWeight * over(relative[member]) / (sum * (members - 2)));
  // What rounding has left, to the fastest, in turn.
  std::uint32_t left = kWholeWeight - std::reduce(weights.begin(), weights.end());
  for (std::size_t member = 0; left > 0; member = (member + 1) % members) {
    if (relative[member] != sorted.front()) continue;
    ++weights[member];
    --left;
  }
  return weights;
}

std::uint64_t timeOf(std::span<const std::uint64_t> relative, const Weights& weights) {
  const std::uint64_t members = relative.size();
  std::uint64_t longest = 0;
  for (std::size_t member = 0; member < members; ++member) {
    const std::uint64_t share = weights.empty() ? kTimeScale / members : kTimeScale * weights[member] / kWholeWeight;
    longest = std::max(longest, (kTimeScale + (members - 2) * share) / relative[member]);
  }
  return longest;
}

const Weights& WeightPolicy::next(const LinkRates& rates, std::uint64_t speed) {
  compare(speed);
  const std::vector<std::uint64_t> relative = relativeRates(rates);
  const bool isEqual = weights_.empty();
  if (isEqual && patience_ > 0) --patience_;
  if (noFaster_ >= kSeenInARow) return giveUp();
  if (risen_ >= kSeenInARow) return returnToEqual();
  if (relative.empty()) return weights_;
  const Weights best = balanced(relative);
  const std::uint64_t present = timeOf(relative, weights_);
  const std::uint64_t gain = 100 * present / timeOf(relative, best);
  const bool mayReturn = !isEqual && 100 * timeOf(relative, {}) <= kWorthReturning * present;
  const bool isWorthIt = isEqual ? gain >= kWorthLeavingEqual && !isGivenUp(gain) : gain >= kWorthAnother;
  seen_ = mayReturn || isWorthIt ? seen_ + 1 : 0;
  if (seen_ < kSeenInARow) return weights_;
  if (mayReturn) return returnToEqual();
  take(best, gain);
  return weights_;
}

void WeightPolicy::take(Weights weights, std::uint64_t gain) {
  if (weights_.empty()) {
    const bool wasInVain = promised_ > 0 && equalFor_ <= kSoon;
    rise_ = wasInVain ? rise_ + kRiseMore : kRise;
    promised_ = gain;
  }
  weights_ = std::move(weights);
  weightedSpeed_ = 0;
  told_ = 0;
  seen_ = noFaster_ = risen_ = 0;
}

// Remembers the speed of equal shards. Notes of others whether they are any faster.
void WeightPolicy::compare(std::uint64_t speed) {
  if (weights_.empty()) {
    equalSpeed_ = seen_ == 0 ? speed : std::max(equalSpeed_, speed);
    ++equalFor_;
    return;
  }
  if (speed == 0) return;
  const bool isFaster = 100 * speed >= kFaster * equalSpeed_;
  noFaster_ = isFaster ? 0 : noFaster_ + 1;
  if (isFaster) nextWait_ = kLeastWait;
  if (++told_ == 1) return;  // connections have yet to find their share of the links
  const bool hasRisen = weightedSpeed_ > 0 && 100 * speed >= rise_ * weightedSpeed_;
  risen_ = hasRisen ? risen_ + 1 : 0;
  if (!hasRisen) weightedSpeed_ = weightedSpeed_ == 0 ? speed : (3 * weightedSpeed_ + speed) / 4;
}

const Weights& WeightPolicy::giveUp() {
  patience_ = nextWait_;
  nextWait_ = std::min(2 * nextWait_, kMostWait);
  return returnToEqual();
}

const Weights& WeightPolicy::returnToEqual() {
  equalFor_ = 0;
  seen_ = noFaster_ = risen_ = 0;
  return weights_ = {};
}

}  // namespace fairring
