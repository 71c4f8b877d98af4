// What the ranks agree on for the weights of shards: each tells the others, in a small call of the engine's own, how
// fast they were heard and how fast large calls were, and from the same figures all choose the same weights. Every so
// many bytes of large calls such a call goes before one of them, at the same place on all ranks. Figures that come out
// of order wait for those before them. Owner of the loop's progress only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "engine/call.h"
#include "exchange/arrivals.h"
#include "exchange/throughput.h"
#include "plan/topology.h"
#include "plan/weights.h"

namespace fairring {

class ShardWeights {
 public:
  static constexpr int kMostMembers = 64;  // whose rates fit a small call
  static constexpr std::uint64_t kBytesBetween = 24 << 20;
  static constexpr std::uint64_t kLeastTimedBytes = 4 << 20;  // of a call whose speed says something of the links

  struct Settings {
    std::function<RatesByPeer()> rates = nullptr;  // that this rank has heard since it was last asked; null: no weights
    std::uint64_t bytesBetween = kBytesBetween;    // of large calls, from one exchange to the next
  };

  // Whether links can differ so that weights help: not where each carries everything, nor where no plan has the rails
  // of all machines.
  static bool applyTo(const Topology& topology);

  ShardWeights(const Topology& topology, int rank, Settings settings);

  bool isDue(std::uint64_t bytes);  // before a call of so many bytes

  // The large call behind an exchange, by the recorder's clock: as an exchange ends on all ranks at about the same
  // time, its time is that of the slowest rank. weighting: the number of the weights that the call had.
  void callBegins(std::int64_t now) { speed_.begin(now); }
  void callEnds(std::uint64_t bytes, std::uint64_t weighting, std::int64_t now);

  class Exchange {
   public:
    Exchange(const LinkRates& own, std::uint64_t speed);  // 0: unknown
    std::vector<Operand> operands();
    LinkRates rates() const;  // once they have been summed
    std::uint64_t speed() const { return slowest_ == kUnknown ? 0 : static_cast<std::uint64_t>(slowest_); }

   private:
    friend class ShardWeights;
    static constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();
    std::vector<std::int64_t> sums_;  // row by row
    std::int64_t slowest_;            // bytes/s of large calls with the present weights
    bool over_ = false;
  };

  std::shared_ptr<Exchange> begin();
  void end(Exchange& exchange);
  // Takes the weights that follow from the next exchange, in the order in which they began; false: that is not over.
  // Calls between two exchanges have the weights of the first, so the caller looks after them before it goes on.
  bool advance();
  std::uint64_t begun() const { return begun_; }  // exchanges
  std::uint64_t taken() const { return begun_ - exchanges_.size(); }

  const Weights& weights() const { return policy_.weights(); }
  std::vector<std::uint32_t> machineParts() const { return partsOfMachines(topology_, weights()); }
  std::uint64_t number() const { return number_; }  // of these weights, another for each; 0: equal shards

 private:
  const Topology& topology_;
  const int member_;
  const Settings settings_;
  WeightPolicy policy_;
  Throughput speed_;
  std::uint64_t number_ = 0;
  std::uint64_t changes_ = 0;
  std::uint64_t bytes_ = 0;  // since the last exchange
  std::uint64_t begun_ = 0;
  std::deque<std::shared_ptr<Exchange>> exchanges_;  // that are not taken yet
};

}  // namespace fairring
