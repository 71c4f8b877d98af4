#include "exchange/rails.h"

#include <algorithm>
#include <cassert>

#include "exchange/summation.h"

namespace fairring {

namespace {

// More would be a peer that is further ahead than any staging allows.
constexpr std::size_t kMostEarlyGrants = 4096;

}  // namespace

Rails::Rails(Loop& loop, int rank, Troubles troubles) : loop_(loop), rank_(rank), troubles_(std::move(troubles)) {}

Rails::~Rails() { loop_.dropWork(this); }

void Rails::stop() {
  stopped_ = true;
  loop_.dropWork(this);
  steps_.clear();
  earlyGrants_.clear();
}

const LevelLayout& Rails::railsOf(const Key& key, const InFlight& state) const {
  return state.slice->layout->at(stepOf(key, state).level);
}

std::vector<Rails::Transfer> Rails::transfersOf(const Slice& slice, std::size_t step) const {
  const auto [verb, level] = (*slice.plan)[step];
  std::byte* area = slice.image + (reduces(verb) ? receiveOffset(*slice.plan, *slice.layout, step) : 0);
  std::vector<Transfer> transfers;
  const std::vector<Rail>& rails = slice.layout->at(level).rails;
  for (std::size_t r = 0; r < rails.size(); ++r) {
    const Rail& rail = rails[r];
    for (std::size_t i = 0; i < rail.owners.size(); ++i) {
      if (static_cast<int>(i) == rail.self) continue;
      const Range mine = rail.shards[static_cast<std::size_t>(rail.self)];
      Transfer transfer{.peer = rail.owners[i],
                        .rail = r,
                        .send = rail.range,
                        .receiveBytes = slice.bytes(rail.range),
                        .receiveAt = area};
      if (verb == Verb::ReduceScatter) {
        transfer.send = rail.shards[i];
        transfer.receiveBytes = slice.bytes(mine);
      } else if (verb == Verb::AllGather) {
        transfer.send = mine;
        transfer.receiveBytes = slice.bytes(rail.shards[i]);
        transfer.receiveAt = slice.image + slice.byteOffset(rail.shards[i].begin);
      }
      if (reduces(verb)) area += transfer.receiveBytes;
      transfers.push_back(transfer);
    }
  }
  return transfers;
}

void Rails::admit(const std::shared_ptr<Slice>& slice) {
  assert(loop_.isCurrent() && !stopped_ && slice->number >= admitted_);
  admitted_ = slice->number + 1;
  for (std::size_t step = 0; step < slice->plan->size(); ++step) {
    if ((*slice->plan)[step].level == 0) continue;
    const Key key{slice->number, step};
    InFlight state;
    state.slice = slice;
    state.transfers = transfersOf(*slice, step);
    for (const Transfer& transfer : state.transfers) {
      if (transfer.send.size() > 0) state.unsent.insert(transfer.peer);
      if (transfer.receiveBytes > 0) ++state.missing;
    }
    steps_.emplace(key, std::move(state));
    if (reduces((*slice->plan)[step].verb)) grant(key);
    const auto early = earlyGrants_.extract(key);
    if (!early.empty()) {
      for (const auto& [peer, header] : early.mapped()) onGrant(peer, header);
    }
    if (stopped_) return;
  }
  for (const int peer : std::set<int>(left_)) leave(peer);
}

void Rails::grant(const Key& key) {
  InFlight& state = steps_.at(key);
  state.promised = true;
  std::set<int> peers;
  for (const Transfer& transfer : state.transfers) {
    if (transfer.receiveBytes > 0) peers.insert(transfer.peer);
  }
  const Part part{.header = {.kind = PartKind::Grant,
                             .step = static_cast<std::uint16_t>(key.step),
                             .slice = key.slice,
                             .signature = state.slice->signature}};
  for (const int peer : peers) pipes_->send(peer, std::span(&part, 1), nullptr);
}

void Rails::onGrant(int peer, const PartHeader& header) {
  const Key key{header.slice, header.step};
  const auto found = steps_.find(key);
  if (found == steps_.end() && header.slice < admitted_) {
    return troubles_.differs(peer);  // the slice is over here, or was never needed
  }
  if (found == steps_.end()) {
    earlyGrants_[key].emplace(peer, header);
    if (earlyGrants_.size() > kMostEarlyGrants) {
      troubles_.failed(makeError(ErrorKind::Connection, "rank ", peer, " granted memory for slice ", header.slice,
                                 ", far beyond what its staging can hold"));
    }
    return;
  }
  InFlight& state = found->second;
  if (!agrees(peer, header, *state.slice)) return;
  state.granted.insert(peer);
  if (state.started && state.unsent.contains(peer)) sendTo(peer, key);
}

void Rails::start(const std::shared_ptr<Slice>& slice, std::size_t step, Events events) {
  assert(loop_.isCurrent() && !stopped_);
  const Key key{slice->number, step};
  InFlight& state = steps_.at(key);
  state.started = true;
  state.events = std::move(events);
  for (const int peer : std::set<int>(state.unsent)) {
    if (state.granted.contains(peer)) sendTo(peer, key);
  }
  if (state.unsent.empty() && state.unreleased == 0) {
    if (const auto gather = pairedGather(key)) grant(*gather);
  }
  advance(key);
}

void Rails::sendTo(int peer, const Key& key) {
  InFlight& state = steps_.at(key);
  const std::vector<Rail>& rails = railsOf(key, state).rails;
  std::vector<Part> parts;
  for (const Transfer& transfer : state.transfers) {
    if (transfer.peer != peer || transfer.send.size() == 0) continue;
    const PartHeader header{.kind = PartKind::Data,
                            .step = static_cast<std::uint16_t>(key.step),
                            .slice = key.slice,
                            .rail = rails[transfer.rail].range.begin,
                            .bytes = state.slice->bytes(transfer.send),
                            .signature = state.slice->signature};
    parts.push_back({header, state.slice->image + state.slice->byteOffset(transfer.send.begin)});
  }
  state.unsent.erase(peer);
  ++state.unreleased;
  pipes_->send(peer, parts, [this, key] { onReleased(key); });
}

void Rails::onReleased(const Key& key) {
  if (stopped_) return;
  InFlight& state = steps_.at(key);
  --state.unreleased;
  if (state.unreleased > 0 || !state.unsent.empty()) return;
  if (const auto gather = pairedGather(key)) grant(*gather);
  advance(key);
  finishIfReleased(key);
}

// The all-gather that writes where this reduce-scatter was sent from.
std::optional<Rails::Key> Rails::pairedGather(const Key& key) const {
  const InFlight& state = steps_.at(key);
  if (stepOf(key, state).verb != Verb::ReduceScatter) return std::nullopt;
  const auto gather = std::ranges::find(*state.slice->plan, Step{Verb::AllGather, stepOf(key, state).level});
  if (gather == state.slice->plan->end()) return std::nullopt;
  return Key{key.slice, static_cast<std::size_t>(gather - state.slice->plan->begin())};
}

void Rails::advance(const Key& key) {
  const InFlight& state = steps_.at(key);
  if (!state.started || state.summing || state.ready || state.missing > 0) return;
  const Verb verb = stepOf(key, state).verb;
  if (verb == Verb::AllGather) return becomeReady(key);
  // The sum of an all-reduce is written over what is being sent.
  if (verb == Verb::AllReduce && (!state.unsent.empty() || state.unreleased > 0)) return;
  sum(key);
}

void Rails::sum(const Key& key) {
  InFlight& state = steps_.at(key);
  state.summing = true;
  const Slice& slice = *state.slice;
  const bool whole = stepOf(key, state).verb == Verb::AllReduce;
  std::vector<Sum> sums;
  auto transfer = state.transfers.cbegin();
  for (const Rail& rail : railsOf(key, state).rails) {
    const Range range = whole ? rail.range : rail.shards[static_cast<std::size_t>(rail.self)];
    Sum sum{.out = slice.image + slice.byteOffset(range.begin), .inputs = {}, .elements = range.size()};
    for (std::size_t i = 0; i < rail.owners.size(); ++i) {
      sum.inputs.push_back(static_cast<int>(i) == rail.self ? sum.out : (transfer++)->receiveAt);
    }
    if (sum.elements > 0) sums.push_back(std::move(sum));
  }
  if (sums.empty()) return becomeReady(key);
  sumInPieces(loop_, this, key.slice, slice.reductionOf(key.step), std::move(sums), [this, key] { becomeReady(key); });
}

void Rails::becomeReady(const Key& key) {
  InFlight& state = steps_.at(key);
  state.summing = false;
  state.ready = true;
  const auto ready = std::move(state.events.ready);
  ready();
  if (!stopped_) finishIfReleased(key);
}

void Rails::finishIfReleased(const Key& key) {
  const auto found = steps_.find(key);
  if (found == steps_.end()) return;
  const InFlight& state = found->second;
  if (!state.ready || state.unreleased > 0 || !state.unsent.empty()) return;
  const auto released = std::move(found->second.events.released);
  steps_.erase(found);
  released();
}

bool Rails::agrees(int peer, const PartHeader& header, const Slice& slice) {
  if (header.signature == slice.signature) return true;
  troubles_.differs(peer);
  return false;
}

Rails::Transfer* Rails::expected(int peer, const PartHeader& header) {
  const Key key{header.slice, header.step};
  const auto found = steps_.find(key);
  if (found == steps_.end()) return nullptr;
  InFlight& state = found->second;
  const std::vector<Rail>& rails = railsOf(key, state).rails;
  const auto transfer = std::ranges::find_if(state.transfers, [&](const Transfer& candidate) {
    return candidate.peer == peer && rails[candidate.rail].range.begin == header.rail;
  });
  return transfer == state.transfers.end() ? nullptr : &*transfer;
}

std::byte* Rails::place(int peer, const PartHeader& header) {
  if (stopped_) return nullptr;
  const auto found = steps_.find({header.slice, header.step});
  if (found != steps_.end() && !agrees(peer, header, *found->second.slice)) return nullptr;
  Transfer* transfer = expected(peer, header);
  const bool promised = found != steps_.end() && found->second.promised && header.kind == PartKind::Data;
  if (transfer == nullptr || !promised || transfer->placed || transfer->receiveBytes != header.bytes) {
    troubles_.failed(makeError(ErrorKind::Connection, "rank ", peer, " sent a part that rank ", rank_,
                               " did not grant: slice ", header.slice, ", step ", header.step, ", rail ", header.rail,
                               ", ", header.bytes, " bytes"));
    return nullptr;
  }
  transfer->placed = true;
  return transfer->receiveAt;
}

void Rails::arrived(int peer, const PartHeader& header) {
  if (stopped_) return;
  if (header.kind == PartKind::Grant) return onGrant(peer, header);
  Transfer* transfer = expected(peer, header);
  if (transfer == nullptr || !transfer->placed || transfer->here) return;  // no bytes: nothing was granted for it
  transfer->here = true;
  const Key key{header.slice, header.step};
  --steps_.at(key).missing;
  advance(key);
}

void Rails::ended(int peer, const Error& error) {
  if (!stopped_) onPipeEnded(peer, error);
}

std::set<int> Rails::missing() const {
  std::set<int> peers;
  for (const auto& [key, state] : steps_) {
    if (!state.started) continue;
    for (const Transfer& transfer : state.transfers) {
      if (transfer.receiveBytes > 0 && !transfer.here) peers.insert(transfer.peer);
    }
    peers.insert(state.unsent.begin(), state.unsent.end());
  }
  return peers;
}

bool Rails::needs(int peer, std::uint64_t slicesBelow) const {
  return std::ranges::any_of(steps_, [&](const auto& entry) {
    const auto& [key, state] = entry;
    if (key.slice >= slicesBelow) return false;
    return state.unsent.contains(peer) || std::ranges::any_of(state.transfers, [peer](const Transfer& transfer) {
             return transfer.peer == peer && transfer.receiveBytes > 0 && !transfer.here;
           });
  });
}

void Rails::leave(int peer) {
  left_.insert(peer);
  if (!needs(peer, UINT64_MAX)) return;
  troubles_.failed(hasLeft(rank_, peer));
}

}  // namespace fairring
