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
  std::size_t members = 0;
  while (members * members < sums_.size()) ++members;
  LinkRates rates(members);
  for (std::size_t from = 0; from < members; ++from) {
    const auto row = sums_.begin() + static_cast<std::ptrdiff_t>(from * members);
    rates[from].assign(row, row + static_cast<std::ptrdiff_t>(members));
  }
  return rates;
}

bool ShardWeights::applyTo(const Topology& topology) {
  const int members = weightedMembers(topology);
  return members >= kFewestWeighted && members <= kMostMembers && !topology.onlyInGroups();
}

ShardWeights::ShardWeights(const Topology& topology, int rank, Settings settings)
    : topology_(topology), member_(weightedMemberOf(topology, rank)), settings_(std::move(settings)) {}

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

// The ranks of a member share its link, so what they hear at the same time is added up.
std::shared_ptr<ShardWeights::Exchange> ShardWeights::begin() {
  const auto members = static_cast<std::size_t>(weightedMembers(topology_));
  LinkRates own(members, std::vector<std::uint64_t>(members));
  for (const auto& [peer, rate] : settings_.rates()) {
    const int from = weightedMemberOf(topology_, peer);
    if (from != member_) own[static_cast<std::size_t>(from)][static_cast<std::size_t>(member_)] += rate;
  }
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
