#include "plan/weights.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace fairring {

namespace {

constexpr std::uint64_t kFull = 64;  // the relative rate of most machines
constexpr std::uint64_t kTimeScale = 1 << 20;

// In hundredths: of the time with the best weights what makes them worth it, and of the present time what makes equal
// shards no worse. Under weights that are not the best any more the links carry unlike, and rates are less certain.
constexpr std::uint64_t kWorthLeavingEqual = 120;
constexpr std::uint64_t kWorthAnother = 103;
constexpr std::uint64_t kWorthReturning = 105;
constexpr int kSeenInARow = 2;

}  // namespace

std::vector<std::uint64_t> relativeRates(const LinkRates& rates) {
  const std::size_t machines = rates.size();
  std::vector<std::uint64_t> slower(machines);
  for (std::size_t machine = 0; machine < machines; ++machine) {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    for (std::size_t other = 0; other < machines; ++other) {
      sent += rates[machine][other];
      received += rates[other][machine];
    }
    slower[machine] = std::min(sent, received);
    if (slower[machine] == 0) return {};
  }
  std::vector<std::uint64_t> sorted = slower;
  std::ranges::sort(sorted, std::greater());
  const std::uint64_t most = sorted[(machines - 1) / 2];
  for (std::uint64_t& rate : slower)
    rate = std::max<std::uint64_t>(
        1, static_cast<std::uint64_t>(static_cast<unsigned __int128>(std::min(rate, most)) * kFull / most));
  return slower;
}

// All machines that own something are through at the same time T, the others before: of the n fastest, whose rates sum
// to S, each owns ((M-2+n) rate / S - 1) / (M-2). n is the most of which all own something.
Weights balanced(std::span<const std::uint64_t> relative) {
  const std::size_t machines = relative.size();
  if (machines < static_cast<std::size_t>(kFewestWeighted)) return {};
  std::vector<std::uint64_t> sorted(relative.begin(), relative.end());
  std::ranges::sort(sorted, std::greater());
  if (sorted.front() == sorted.back()) return {};
  std::size_t owners = machines;
  std::uint64_t sum = std::reduce(sorted.begin(), sorted.end());
  const auto over = [&](std::uint64_t rate) {  // what it owns, times sum * (M-2); nothing where that is not positive
    const std::uint64_t carried = (machines - 2 + owners) * rate;
    return carried > sum ? carried - sum : 0;
  };
  while (over(sorted[owners - 1]) == 0) sum -= sorted[--owners];

  Weights weights(machines);
  for (std::size_t machine = 0; machine < machines; ++machine)
    weights[machine] = static_cast<std::uint32_t>(kWholeWeight * over(relative[machine]) / (sum * (machines - 2)));
  // What rounding has left, to the fastest, in turn.
  std::uint32_t left = kWholeWeight - std::reduce(weights.begin(), weights.end());
  for (std::size_t machine = 0; left > 0; machine = (machine + 1) % machines) {
    if (relative[machine] != sorted.front()) continue;
    ++weights[machine];
    --left;
  }
  return weights;
}

std::uint64_t timeOf(std::span<const std::uint64_t> relative, const Weights& weights) {
  const std::uint64_t machines = relative.size();
  std::uint64_t longest = 0;
  for (std::size_t machine = 0; machine < machines; ++machine) {
    const std::uint64_t share = weights.empty() ? kTimeScale / machines : kTimeScale * weights[machine] / kWholeWeight;
    longest = std::max(longest, (kTimeScale + (machines - 2) * share) / relative[machine]);
  }
  return longest;
}

const Weights& WeightPolicy::next(const LinkRates& rates) {
  const std::vector<std::uint64_t> relative = relativeRates(rates);
  if (relative.empty()) return weights_;
  const Weights best = balanced(relative);
  const std::uint64_t present = timeOf(relative, weights_);
  const bool isEqual = weights_.empty();
  const bool mayReturn = !isEqual && 100 * timeOf(relative, {}) <= kWorthReturning * present;
  const std::uint64_t worthIt = isEqual ? kWorthLeavingEqual : kWorthAnother;
  const bool pays = mayReturn || 100 * present >= worthIt * timeOf(relative, best);
  seen_ = pays ? seen_ + 1 : 0;
  if (seen_ < kSeenInARow) return weights_;
  seen_ = 0;
  return weights_ = mayReturn ? Weights{} : best;
}

}  // namespace fairring
