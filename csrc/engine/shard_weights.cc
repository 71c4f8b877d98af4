#include "engine/shard_weights.h"

#include <cstddef>
#include <utility>

namespace fairring {

ShardWeights::Exchange::Exchange(const LinkRates& own, std::uint64_t speed)
    : slowest_(speed == 0 ? kUnknown : static_cast<std::int64_t>(speed)) {
  for (const std::vector<std::uint64_t>& row : own) sums_.insert(sums_.end(), row.begin(), row.end());
}

std::vector<Operand> ShardWeights::Exchange::operands() {
  return {{sums_.data(), sums_.size(), {.dtype = DType::Int64}},
          {&slowest_, 1, {.dtype = DType::Int64, .op = Op::Min}}};
}

LinkRates ShardWeights::Exchange::rates() const {
  std::size_t machines = 0;
  while (machines * machines < sums_.size()) ++machines;
  LinkRates rates(machines);
  for (std::size_t from = 0; from < machines; ++from) {
    const auto row = sums_.begin() + static_cast<std::ptrdiff_t>(from * machines);
    rates[from].assign(row, row + static_cast<std::ptrdiff_t>(machines));
  }
  return rates;
}

bool ShardWeights::applyTo(const Topology& topology) {
  return topology.sites() == 1 && topology.machines() >= kFewestWeighted && topology.machines() <= kMostMachines &&
         !topology.onlyInGroups();
}

ShardWeights::ShardWeights(const Topology& topology, int rank, Settings settings)
    : topology_(topology), machine_(topology.machineOf(rank)), settings_(std::move(settings)) {}

bool ShardWeights::isDue(std::uint64_t bytes) {
  bytes_ += bytes;
  if (bytes_ < settings_.bytesBetween) return false;
  bytes_ = 0;
  return true;
}

void ShardWeights::callEnds(std::uint64_t bytes, std::uint64_t weighting, std::int64_t now) {
  speed_.end(bytes, now);
  if (weighting != number_) speed_.take();  // until then calls had other weights, and their time says nothing of these
}

// The ranks of a machine share its link, so what they hear at the same time is added up.
std::shared_ptr<ShardWeights::Exchange> ShardWeights::begin() {
  const auto machines = static_cast<std::size_t>(topology_.machines());
  LinkRates own(machines, std::vector<std::uint64_t>(machines));
  for (const auto& [peer, rate] : settings_.rates())
    own[static_cast<std::size_t>(topology_.machineOf(peer))][static_cast<std::size_t>(machine_)] += rate;
  ++begun_;
  return exchanges_.emplace_back(std::make_shared<Exchange>(own, speed_.take()));
}

void ShardWeights::end(Exchange& exchange) { exchange.over_ = true; }

bool ShardWeights::advance() {
  if (exchanges_.empty() || !exchanges_.front()->over_) return false;
  const Weights before = policy_.weights();
  if (policy_.next(exchanges_.front()->rates(), exchanges_.front()->speed()) != before) {
    number_ = policy_.weights().empty() ? 0 : ++changes_;
    speed_.take();
  }
  exchanges_.pop_front();
  return true;
}

}  // namespace fairring
