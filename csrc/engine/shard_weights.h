// What the ranks agree on for the weights of shards: each tells the others, in a small call of the engine's own, how
// fast they were heard, and from the same rates all choose the same weights. Every so many bytes of large calls such a
// call goes before one of them, at the same place on all ranks. Rates that come out of order wait for those before
// them. Owner of the loop's progress only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "engine/call.h"
#include "exchange/arrivals.h"
#include "plan/topology.h"
#include "plan/weights.h"

namespace fairring {

class ShardWeights {
 public:
  static constexpr int kMostMachines = 64;  // whose rates fit a small call
  static constexpr std::uint64_t kBytesBetween = 24 << 20;

  struct Settings {
    std::function<RatesByPeer()> rates = nullptr;  // that this rank has heard since it was last asked; null: no weights
    std::uint64_t bytesBetween = kBytesBetween;    // of large calls, from one exchange to the next
  };

  // Whether links can differ so that weights help: not where each carries everything, nor beyond one site.
  static bool applyTo(const Topology& topology);

  ShardWeights(const Topology& topology, int rank, Settings settings);

  bool isDue(std::uint64_t bytes);  // before a call of so many bytes

  class Exchange {
   public:
    explicit Exchange(LinkRates own);
    Operand operand();
    LinkRates rates() const;  // once it has been summed

   private:
    friend class ShardWeights;
    std::vector<std::int64_t> sums_;  // row by row
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
  std::uint64_t number() const { return number_; }  // of these weights, another for each; 0: equal shards

 private:
  const Topology& topology_;
  const int machine_;
  const Settings settings_;
  WeightPolicy policy_;
  std::uint64_t number_ = 0;
  std::uint64_t changes_ = 0;
  std::uint64_t bytes_ = 0;  // since the last exchange
  std::uint64_t begun_ = 0;
  std::deque<std::shared_ptr<Exchange>> exchanges_;  // that are not taken yet
};

}  // namespace fairring
