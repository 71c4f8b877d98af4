// How much of each rail each member of one level owns: more if its link is faster, so that a slow one does not slow the
// whole all-reduce. Members are the machines of a job of one site, and the sites of a job of several, whose links are
// slower than those inside them. A member of share w carries N(1 + (M-2)w) of N bytes each way, M members in all; what
// balances that is derived in docs/algorithms.md. Whoever owns an element, its sum is the same, bit by bit. Pure
// arithmetic in integers: the same rates give the same weights on all ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/topology.h"

namespace fairring {

inline constexpr std::uint32_t kWholeWeight = 256;  // that a rail's weights sum to
inline constexpr int kFewestWeighted = 3;           // members; of two, each carries N whatever it owns

using Weights = std::vector<std::uint32_t>;  // by member; none: equal shards

int weightedLevel(const Topology& topology);
int weightedMembers(const Topology& topology);
int weightedMemberOf(const Topology& topology, int rank);

// What each machine owns, in integers that may have any sum; none where shards are equal.
std::vector<std::uint32_t> partsOfMachines(const Topology& topology, const Weights& weights);

// Bytes/s from each member to each other, as the receivers saw it while something came; 0: nothing came. A member's
// own are left at 0.
using LinkRates = std::vector<std::vector<std::uint64_t>>;  // [from][to]

// The rate of each member, in 64ths of what most members have and no more than that: the slower of what it sends and
// what it receives. Empty where nothing is known of one.
std::vector<std::uint64_t> relativeRates(const LinkRates& rates);

// The weights with which the last member is through first. Empty if all are alike.
Weights balanced(std::span<const std::uint64_t> relative);

// How long a call takes, compared with others of the same members.
std::uint64_t timeOf(std::span<const std::uint64_t> relative, const Weights& weights);

// Chooses the weights now and then, from rates that vary. They change only where the gain is worth it and has been seen
// twice in a row; back to equal shards already where these are hardly slower. Rates are no more than a promise: weights
// with which calls turn out to be no faster than with equal shards just before are given up, and not tried again for a
// while, which doubles each time, unless rates promise more than they did. Under weights links carry unlike, and their
// rates tell less; so when calls become faster under them, the links have changed, and equal shards are returned to.
class WeightPolicy {
 public:
  // All ranks give it the same figures, in the same order. speed: bytes/s of the calls with the present weights since
  // the last time; 0: unknown.
  const Weights& next(const LinkRates& rates, std::uint64_t speed = 0);
  const Weights& weights() const { return weights_; }

 private:
  const Weights& giveUp();
  const Weights& returnToEqual();
  void take(Weights weights, std::uint64_t gain);
  bool isGivenUp(std::uint64_t gain) const { return patience_ > 0 && gain < promised_ + kPromisesMore; }
  void compare(std::uint64_t speed);

  static constexpr std::uint64_t kPromisesMore = 20;  // hundredths
  static constexpr int kLeastWait = 8;                // times that equal shards are kept
  static constexpr int kMostWait = 512;
  static constexpr std::uint64_t kRise = 106;  // hundredths of the speed until then

  Weights weights_;
  int seen_ = 0;                     // times in a row that others would pay
  std::uint64_t equalSpeed_ = 0;     // with equal shards, the greatest since others would pay; 0: unknown
  std::uint64_t promised_ = 0;       // gain of the weights that were taken last over equal shards, in hundredths
  int noFaster_ = 0;                 // times in a row that calls with weights were no faster
  int told_ = 0;                     // times that the speed with the present weights was known
  std::uint64_t weightedSpeed_ = 0;  // in the mean, but for the first time; 0: unknown
  int risen_ = 0;                    // times in a row that calls with weights were faster than that
  std::uint64_t rise_ = kRise;       // by which they have to be
  int equalFor_ = 0;                 // times since equal shards were returned to
  int patience_ = 0;                 // times that equal shards are still kept
  int nextWait_ = kLeastWait;
};

}  // namespace fairring
