// The pipeline's way with weighted shards: calls behind an exchange of rates are cut when its weights are known.
#include <cstddef>
#include <utility>

#include "engine/pipeline.h"

namespace fairring {

namespace {

constexpr std::size_t kMostWeighted = 256;

}  // namespace

// NOLINTBEGIN(bugprone-unchecked-optional-access): what follows is called where there are weights.
void Pipeline::submitWeighted(Call call, Packing packing, std::uint64_t signature, CachedPlan even) {
  const std::uint64_t bytes = packing.bytes();
  const bool isDue = weights_->isDue(bytes);
  if (isDue) tellRates(call, signature);
  const bool known = weights_->taken() == weights_->begun();
  if (known) even = weighted(even, bytes);
  const auto pending = enqueue(std::move(call), std::move(packing), signature, even);
  pending->sized = known;
  if (!known) unweighted_.push_back({pending, weights_->begun()});
  pending->tellsSpeed = isDue && bytes >= ShardWeights::kLeastTimedBytes;
}

// It stands before the call, which waits for it: so it is over on every rank before that call is.
void Pipeline::tellRates(const Call& call, std::uint64_t signature) {
  const std::shared_ptr<ShardWeights::Exchange> exchange = weights_->begin();
  Packing packing(exchange->operands());
  const CachedPlan& chosen = plans_.of(Pattern::AllReduce, packing.bytes());
  const auto told = enqueue({.operands = exchange->operands(), .signature = call.signature, .done = nullptr},
                            std::move(packing), signature, chosen);
  told->learned = [this, exchange](std::uint32_t) {
    weights_->end(*exchange);
    while (weights_->advance()) weighWaiting();
  };
}

void Pipeline::weighWaiting() {
  while (!unweighted_.empty() && unweighted_.front().exchange <= weights_->taken()) {
    const std::shared_ptr<Pending> pending = std::move(unweighted_.front().call);
    unweighted_.pop_front();
    pending->chosen = weighted(pending->chosen, pending->bytes);
    pending->sized = true;
  }
}

Pipeline::CachedPlan Pipeline::weighted(const CachedPlan& even, std::uint64_t bytes) {
  if (weights_->number() == 0) return even;
  if (weights_->number() != std::exchange(weightedBy_, weights_->number()) || weighted_.size() >= kMostWeighted)
    weighted_.clear();
  const auto known = weighted_.find(bytes);
  if (known != weighted_.end()) return known->second;
  CachedPlan chosen = even;
  const PlanChoice choice = planner_.choose(Pattern::AllReduce, bytes);
  if (const auto better = planner_.weighted(choice, bytes, weights_->weights())) {
    chosen = plans_.of(*better, planner_.turns(better->plan));
    chosen.weights = std::make_shared<const Weights>(weights_->weights());
    chosen.weighting = weights_->number();
  }
  return weighted_[bytes] = chosen;
}

// NOLINTEND(bugprone-unchecked-optional-access)

}  // namespace fairring
