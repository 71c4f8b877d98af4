#include "exchange/rails.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "exchange/site_compression.h"
#include "exchange/summation.h"

namespace fairring {

namespace {

// Whether nothing is sent from the memory that a step receives into. What an all-gather brings arrives where a
// reduce-scatter of the same slice was sent from, if there was one.
bool isFreeFromTheStart(const Plan& plan, std::size_t step) {
  const Step scatter{Verb::ReduceScatter, plan[step].level, plan[step].shards};
  return reduces(plan[step].verb) || std::ranges::find(plan, scatter) == plan.end();
}

}  // namespace

Rails::Rails(Loop& loop, int rank, Troubles troubles, EagerLimits limits)
    : loop_(loop), rank_(rank), troubles_(std::move(troubles)), limits_(limits), unexpected_(limits) {}

Rails::~Rails() { loop_.dropWork(this); }

void Rails::stop() {
  stopped_ = true;
  loop_.dropWork(this);
  steps_.clear();
  earlyGrants_.clear();
}

void Rails::admit(const std::shared_ptr<Slice>& slice) {
  assert(loop_.isCurrent() && !stopped_ && !isAdmitted(slice->number));
  const TrafficClass trafficClass = trafficClassOf(slice->number);
  admitted_[trafficClass] = slice->number + 1;
  for (std::size_t step = 0; step < slice->plan->size() && !stopped_; ++step) {
    if ((*slice->plan)[step].level == 0) continue;
    const Key key{slice->number, step};
    InFlight state;
    state.slice = slice;
    state.transfers = transfersOf(*slice, step);
    state.unsent = bytesTo(state.transfers);
    state.missing = static_cast<std::size_t>(
        std::ranges::count_if(state.transfers, [](const Transfer& transfer) { return transfer.receiveBytes > 0; }));
    steps_.emplace(key, std::move(state));
    if (isFreeFromTheStart(*slice->plan, step)) promise(key);
    const auto early = earlyGrants_.extract(key);
    if (early.empty()) continue;
    for (const auto& [peer, header] : early.mapped()) onGrant(peer, header);
  }
  for (auto& [peer, neighbour] : neighbours_) {
    if (neighbour.asked.erase(slice->number) == 0 || stopped_ ||
        neighbour.told[trafficClass] >= admitted_[trafficClass])
      continue;
    say(MessageKind::CreditUpdate, peer, slice->number, slice->signature);
  }
  for (const int peer : std::set<int>(left_)) {
    if (!stopped_) leave(peer);
  }
}

// The memory of this step is free for what comes: large messages are told so, small ones may be there already.
void Rails::promise(const Key& key) {
  InFlight& state = steps_.at(key);
  state.promised = true;
  for (const auto& [peer, bytes] : bytesFrom(state.transfers)) {
    if (bytes <= limits_.messageBytes) continue;
    const Message message{.header = {.kind = MessageKind::Grant,
                                     .step = static_cast<std::uint16_t>(key.step),
                                     .slice = key.slice,
                                     .signature = state.slice->signature}};
    send(peer, std::span(&message, 1), nullptr);
  }
  adopt(key);
}

void Rails::send(int peer, std::span<const Message> messages, Channels::Released released) {
  Neighbour& there = neighbour(peer);
  const std::uint64_t slice = messages.front().header.slice;
  there.told[trafficClassOf(slice)] = std::max(there.told[trafficClassOf(slice)], slice + 1);
  channels_->send(peer, messages, std::move(released));
}

void Rails::say(MessageKind kind, int peer, std::uint64_t slice, std::uint64_t signature) {
  const Message message{.header = {.kind = kind, .slice = slice, .signature = signature}};
  send(peer, std::span(&message, 1), nullptr);
}

void Rails::start(const std::shared_ptr<Slice>& slice, std::size_t step, Events events) {
  assert(loop_.isCurrent() && !stopped_);
  const Key key{slice->number, step};
  InFlight& state = steps_.at(key);
  state.events = std::move(events);
  if (!isCompressed(*slice, step)) return begin(key);
  runInPieces(loop_, this, urgencyOf(key.slice), roundingOf(*slice, step), [this, key] { begin(key); });
}

void Rails::begin(const Key& key) {
  InFlight& state = steps_.at(key);
  state.started = true;
  for (const int peer : inTurn(state.unsent)) {
    if (maySend(peer, key)) {
      sendTo(peer, key);
      continue;
    }
    neighbour(peer).held.insert(key);
    if (state.unsent.at(peer) <= limits_.messageBytes)
      say(MessageKind::CreditRequest, peer, key.slice, state.slice->signature);
  }
  if (state.unsent.empty() && state.unreleased == 0) {
    if (const auto gather = pairedGather(key)) promise(*gather);
  }
  advance(key);
}

// The next rank first: were all to begin with the same one, its network card would have to take everything at once.
std::vector<int> Rails::inTurn(const std::map<int, std::uint64_t>& byPeer) const {
  std::vector<int> peers;
  peers.reserve(byPeer.size());
  for (const auto& [peer, bytes] : byPeer) peers.push_back(peer);
  std::ranges::rotate(peers, std::ranges::upper_bound(peers, rank_));
  return peers;
}

// Takes of the credit: what may be sent is to be sent.
bool Rails::maySend(int peer, const Key& key) {
  const InFlight& state = steps_.at(key);
  return state.granted.contains(peer) || neighbour(peer).creditFor(key.slice).take(key.slice, state.unsent.at(peer));
}

void Rails::sendTo(int peer, const Key& key) {
  InFlight& state = steps_.at(key);
  std::vector<Message> messages;
  for (const Transfer& transfer : state.transfers) {
    if (transfer.peer != peer || transfer.sendBytes == 0) continue;
    const MessageHeader header{.kind = MessageKind::Data,
                               .step = static_cast<std::uint16_t>(key.step),
                               .refused = state.slice->refused,
                               .slice = key.slice,
                               .rail = transfer.rail,
                               .bytes = transfer.sendBytes,
                               .signature = state.slice->signature};
    messages.push_back({header, transfer.sendFrom});
    traffic_[(*state.slice->plan)[key.step].level].add(header.bytes);
  }
  state.unsent.erase(peer);
  neighbour(peer).held.erase(key);
  ++state.unreleased;
  send(peer, messages, [this, key] { onReleased(key); });
}

void Rails::onReleased(const Key& key) {
  if (stopped_) return;
  InFlight& state = steps_.at(key);
  --state.unreleased;
  if (state.unreleased > 0 || !state.unsent.empty()) return;
  if (const auto gather = pairedGather(key)) promise(*gather);
  advance(key);
  finishIfReleased(key);
}

// The all-gather that writes where this reduce-scatter was sent from.
std::optional<Rails::Key> Rails::pairedGather(const Key& key) const {
  const InFlight& state = steps_.at(key);
  const Plan& plan = *state.slice->plan;
  if (plan[key.step].verb != Verb::ReduceScatter) return std::nullopt;
  const auto gather = std::ranges::find(plan, Step{Verb::AllGather, plan[key.step].level, plan[key.step].shards});
  if (gather == plan.end()) return std::nullopt;
  return Key{key.slice, static_cast<std::size_t>(gather - plan.begin())};
}

void Rails::advance(const Key& key) {
  InFlight& state = steps_.at(key);
  if (!state.started || state.summing || state.ready || state.missing > 0) return;
  const Verb verb = verbOf(key, state);
  // The sum of an all-reduce is written over what is being sent.
  if (verb == Verb::AllReduce && (!state.unsent.empty() || state.unreleased > 0)) return;
  if (isCompressed(*state.slice, key.step)) {
    state.summing = true;
    return runInPieces(loop_, this, urgencyOf(key.slice), resultOf(*state.slice, key.step, state.transfers),
                       [this, key] { becomeReady(key); });
  }
  if (verb == Verb::AllGather || state.slice->summedElsewhere) return becomeReady(key);
  if (state.slice->rows) {
    state.summing = true;
    return sumRowsInPieces(loop_, this, urgencyOf(key.slice), rowSumsOf(*state.slice, key.step, state.transfers),
                           [this, key] { becomeReady(key); });
  }
  Sums sums = sumsOf(*state.slice, key.step, state.transfers);
  if (sums.empty()) return becomeReady(key);
  state.summing = true;
  sumInPieces(loop_, this, urgencyOf(key.slice), std::move(sums), [this, key] { becomeReady(key); });
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

bool Rails::agrees(int peer, const MessageHeader& header, const Slice& slice) {
  if (header.signature == slice.signature) return true;
  troubles_.differs(peer);
  return false;
}

std::set<int> Rails::missing() const {
  std::set<int> peers;
  for (const auto& [key, state] : steps_) {
    if (!state.started) continue;
    for (const Transfer& transfer : state.transfers) {
      if (transfer.receiveBytes > 0 && !transfer.here) peers.insert(transfer.peer);
    }
    for (const auto& [peer, bytes] : state.unsent) peers.insert(peer);
  }
  return peers;
}

bool Rails::needs(int peer, const ByTrafficClass<std::uint64_t>& slicesBelow) const {
  return std::ranges::any_of(steps_, [&](const auto& entry) {
    const auto& [key, state] = entry;
    if (key.slice >= slicesBelow[trafficClassOf(key.slice)]) return false;
    return state.unsent.contains(peer) || std::ranges::any_of(state.transfers, [peer](const Transfer& transfer) {
             return transfer.peer == peer && transfer.receiveBytes > 0 && !transfer.here;
           });
  });
}

void Rails::leave(int peer) {
  left_.insert(peer);
  if (!needs(peer)) return;
  troubles_.failed(hasLeft(rank_, peer));
}

}  // namespace fairring
