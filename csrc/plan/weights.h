// Of a site's machines, how much of each rail each owns: more where the link is faster, so that a slow one does not
// slow the whole all-reduce. A machine of share w carries N(1 + (M-2)w) of N bytes each way, M machines in all; what
// balances that is derived in docs/algorithms.md. Whoever owns an element, its sum is the same, bit by bit. Pure
// arithmetic in integers: the same rates give the same weights on all ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fairring {

inline constexpr std::uint32_t kWholeWeight = 256;  // that a rail's weights sum to
inline constexpr int kFewestWeighted = 3;           // machines; of two, each carries N whatever it owns

using Weights = std::vector<std::uint32_t>;  // by machine; none: equal shards

// Bytes/s from each machine to each other, as the receivers saw it while something came; 0: nothing came. A machine's
// own are left at 0.
using LinkRates = std::vector<std::vector<std::uint64_t>>;  // [from][to]

// Of each machine, in 64ths of what most machines have and no more than that: the slower of what it sends and what it
// receives. Empty where nothing is known of one.
std::vector<std::uint64_t> relativeRates(const LinkRates& rates);

// With which the last machine is through first. Empty where all are alike.
Weights balanced(std::span<const std::uint64_t> relative);

// How long a call takes, compared with others of the same machines.
std::uint64_t timeOf(std::span<const std::uint64_t> relative, const Weights& weights);

// Chooses the weights now and then, from rates that vary. They change only where the gain is worth it and has been seen
// twice in a row; back to equal shards already where these are hardly slower.
class WeightPolicy {
 public:
  // All ranks give it the same rates, in the same order.
  const Weights& next(const LinkRates& rates);
  const Weights& weights() const { return weights_; }

 private:
  Weights weights_;
  int seen_ = 0;  // in a row, that others would pay
};

}  // namespace fairring
