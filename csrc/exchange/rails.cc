#include "exchange/rails.h"

#include <algorithm>
#include <cassert>

#include "exchange/slice_body.h"
#include "exchange/transfers.h"

namespace fairring {

namespace {

// Whether nothing is sent from the memory that a step receives into. A gathering step receives where a scattering step
// of the same slice and level was sent from, if there was one.
bool isFreeFromTheStart(const Plan& plan, std::size_t step) {
  const auto isPaired = [&](const Step& other) { return scatters(other.verb) && other.level == plan[step].level; };
  return !gathers(plan[step].verb) || std::ranges::none_of(plan, isPaired);
}

}  // namespace

Rails::Rails(Loop& loop, int rank, Troubles troubles, EagerLimits limits)
    : Exchange(std::move(troubles)), loop_(loop), rank_(rank), limits_(limits), unexpected_(limits) {}

Rails::~Rails() { stop(); }

void Rails::stop() {
  for (const auto& [peer, channel] : channels_) channel->close();
  loop_.dropWork(this);
  steps_.clear();
  earlyGrants_.clear();
}

bool Rails::isLinked() const {
  return std::ranges::all_of(channels_, [](const auto& entry) { return entry.second->isOpen(); });
}

Channel* Rails::channelTo(int peer) const {
  const auto found = channels_.find(peer);
  return found == channels_.end() ? nullptr : found->second.get();
}

bool Rails::isAtRest() const {
  return steps_.empty() && earlyGrants_.empty() && unexpected_.empty() &&
         std::ranges::all_of(neighbours_,
                             [](const auto& entry) { return entry.second.held.empty() && entry.second.asked.empty(); });
}

void Rails::admit(const std::shared_ptr<Slice>& slice) {
  assert(loop_.isCurrent() && !isAdmitted(slice->id));
  const auto [queue, sequence] = slice->id;
  admitted_[queue] = sequence + 1;
  for (std::size_t step = 0; step < slice->plan->size(); ++step) {
    if ((*slice->plan)[step].level == 0) continue;
    const Key key{slice->id, step};
    InFlight state;
    state.slice = slice;
    state.transfers = slice->body->transfers(*slice, step);
    state.record = Recorder::recordOf(*slice, step);
    state.unsent = bytesByPeer(state.transfers, &Transfer::sendBytes);
    state.missing = static_cast<std::size_t>(std::ranges::count_if(state.transfers, &Transfer::isMissing));
    steps_.emplace(key, std::move(state));
    if (isFreeFromTheStart(*slice->plan, step)) promise(key);
    const auto early = earlyGrants_.extract(key);
    if (early.empty()) continue;
    for (const auto& [peer, header] : early.mapped()) onGrant(peer, header);
  }
  for (auto& [peer, neighbour] : neighbours_) {
    if (neighbour.asked.erase(slice->id) == 0 || neighbour.told[queue] >= admitted_[queue]) continue;
    say(SliceHeader::Kind::CreditUpdate, peer, slice->id, slice->signature);
  }
  failIfLeftPeersAreNeeded();
}

// The memory of this step is free for arrivals: large messages are granted, small ones may be there already.
void Rails::promise(const Key& key) {
  InFlight& state = steps_.at(key);
  state.promised = true;
  for (const auto& [peer, bytes] : bytesByPeer(state.transfers, &Transfer::receiveBytes)) {
    if (bytes > limits_.messageBytes) say(SliceHeader::Kind::Grant, peer, key.slice, state.slice->signature, key.step);
  }
  adopt(key);
}

void Rails::send(int peer, SliceId slice, std::span<const Message> messages, Channel::Released released) {
  const auto [queue, sequence] = slice;
  std::uint64_t& told = neighbours_[peer].told[queue];
  told = std::max(told, sequence + 1);
  channels_.at(peer)->send(messages, std::move(released));
}

void Rails::say(SliceHeader::Kind kind, int peer, SliceId slice, std::uint64_t signature, std::size_t step) {
  const Message message{
      .header = onWire(SliceHeader{
          .kind = kind, .step = static_cast<std::uint16_t>(step), .slice = slice.onWire(), .signature = signature})};
  send(peer, slice, std::span(&message, 1), nullptr);
}

void Rails::start(const std::shared_ptr<Slice>& slice, std::size_t step, Events events) {
  assert(loop_.isCurrent());
  const Key key{slice->id, step};
  InFlight& state = steps_.at(key);
  state.events = std::move(events);
  state.record.began = timeBy(recorder_);
  slice->body->beforeSending(*slice, step).run(loop_, this, urgencyOf(key.slice), [this, key] { begin(key); });
}

void Rails::begin(const Key& key) {
  InFlight& state = steps_.at(key);
  state.started = true;
  if (verbOf(key, state) != Verb::Relay || state.missing == 0) offer(key);
  advance(key);
}

void Rails::offer(const Key& key) {
  InFlight& state = steps_.at(key);
  state.offered = true;
  state.record.offered = timeBy(recorder_);
  for (const int peer : inTurn(state.unsent)) {
    if (maySend(peer, key)) {
      sendTo(peer, key);
      continue;
    }
    neighbours_[peer].held.insert(key);
    if (state.unsent.at(peer) <= limits_.messageBytes)
      say(SliceHeader::Kind::CreditRequest, peer, key.slice, state.slice->signature);
  }
  if (state.unsent.empty() && state.unreleased.empty()) promisePairedGather(key);
}

// The next rank first: if all began with the same one, its network card would have to take everything at once.
std::vector<int> Rails::inTurn(const std::map<int, std::uint64_t>& byPeer) const {
  std::vector<int> peers;
  peers.reserve(byPeer.size());
  for (const auto& [peer, bytes] : byPeer) peers.push_back(peer);
  std::ranges::rotate(peers, std::ranges::upper_bound(peers, rank_));
  return peers;
}

// Takes from the credit: the bytes must then be sent.
bool Rails::maySend(int peer, const Key& key) {
  const InFlight& state = steps_.at(key);
  const auto [queue, sequence] = key.slice;
  return state.granted.contains(peer) || neighbours_[peer].credit[queue].take(sequence, state.unsent.at(peer), limits_);
}

void Rails::sendTo(int peer, const Key& key) {
  InFlight& state = steps_.at(key);
  recordSend(peer, key, state);
  std::vector<Message> messages;
  for (const Transfer& transfer : state.transfers) {
    if (transfer.peer != peer || transfer.sendBytes == 0) continue;
    const SliceHeader header{.kind = SliceHeader::Kind::Data,
                             .step = static_cast<std::uint16_t>(key.step),
                             .refused = state.slice->refused,
                             .slice = key.slice.onWire(),
                             .rail = transfer.rail,
                             .bytes = transfer.sendBytes,
                             .signature = state.slice->signature};
    messages.push_back({onWire(header), transfer.sendFrom, trafficClassOf(key.slice.queue)});
    traffic_[(*state.slice->plan)[key.step].level].add(header.bytes);
  }
  state.unsent.erase(peer);
  neighbours_[peer].held.erase(key);
  state.unreleased.insert(peer);
  send(peer, key.slice, messages, [this, peer, key] { onReleased(peer, key); });
}

void Rails::recordSend(int peer, const Key& key, InFlight& state) {
  const std::uint64_t bytes = state.unsent.at(peer);
  if (recorder_ == nullptr || bytes < Recorder::kLeastBytes) return;
  SliceRecord& record = state.sends[peer] = state.record;
  record.kind = SliceRecord::Kind::Send;
  record.peer = peer;
  record.slice = key.slice.onWire();
  record.bytes = bytes;
  record.began = state.record.offered;
  record.offered = timeBy(recorder_, bytes);
  record.heard = 0;
}

void Rails::recordArrival(int peer, const Transfer& transfer, InFlight& state) {
  state.record.peer = peer;
  state.record.heard = timeBy(recorder_, transfer.receiveBytes);
  if (recorder_ == nullptr || transfer.receiveBytes < Recorder::kLeastBytes || transfer.placedAt == 0) return;
  SliceRecord record = state.record;
  record.kind = SliceRecord::Kind::Receive;
  record.bytes = transfer.receiveBytes;
  record.began = transfer.placedAt;
  record.ready = record.heard;
  record.offered = record.heard = 0;
  recorder_->add(record);
}

void Rails::onReleased(int peer, const Key& key) {
  InFlight& state = steps_.at(key);
  if (auto sent = state.sends.extract(peer)) {
    sent.mapped().ready = timeBy(recorder_, sent.mapped().bytes);
    recorder_->add(sent.mapped());
  }
  state.unreleased.erase(peer);
  if (!state.unreleased.empty() || !state.unsent.empty()) return;
  promisePairedGather(key);
  advance(key);
  finishIfReleased(key);
}

// The gathering step that writes where this scattering one was sent from. It may be over: then it receives nothing
// here.
void Rails::promisePairedGather(const Key& key) {
  const Plan& plan = *steps_.at(key).slice->plan;
  if (!scatters(plan[key.step].verb)) return;
  const auto gather = std::ranges::find_if(
      plan, [&](const Step& other) { return gathers(other.verb) && other.level == plan[key.step].level; });
  const Key paired{key.slice, static_cast<std::size_t>(gather - plan.begin())};
  if (gather != plan.end() && steps_.contains(paired)) promise(paired);
}

void Rails::advance(const Key& key) {
  InFlight& state = steps_.at(key);
  if (!state.started || state.computing || state.ready || state.missing > 0) return;
  const Verb verb = verbOf(key, state);
  if (!state.offered) offer(key);
  // The sum of an all-reduce overwrites the bytes that are being sent.
  if (verb == Verb::AllReduce && (!state.unsent.empty() || !state.unreleased.empty())) return;
  state.computing = true;
  state.slice->body->afterReceiving(*state.slice, key.step, state.transfers)
      .run(loop_, this, urgencyOf(key.slice), [this, key] { becomeReady(key); });
}

void Rails::becomeReady(const Key& key) {
  InFlight& state = steps_.at(key);
  state.computing = false;
  state.ready = true;
  state.record.ready = timeBy(recorder_);
  const auto ready = std::move(state.events.ready);
  ready();
  finishIfReleased(key);
}

void Rails::finishIfReleased(const Key& key) {
  const auto found = steps_.find(key);
  if (found == steps_.end()) return;
  InFlight& state = found->second;
  if (!state.ready || !state.unreleased.empty() || !state.unsent.empty()) return;
  if (recorder_ != nullptr) {
    state.record.released = timeBy(recorder_);
    recorder_->add(state.record);
  }
  const auto released = std::move(found->second.events.released);
  steps_.erase(found);
  released();
}

bool Rails::agrees(int peer, const SliceHeader& header, const Slice& slice) {
  if (header.signature == slice.signature) return true;
  troubles_.differs(peer);
  return false;
}

std::set<int> Rails::missing() const {
  std::set<int> peers;
  for (const auto& [key, state] : steps_) {
    if (!state.started) continue;
    for (const Transfer& transfer : state.transfers) {
      if (transfer.isMissing()) peers.insert(transfer.peer);
    }
    if (!state.offered) continue;
    for (const auto& [peer, bytes] : state.unsent) peers.insert(peer);
    peers.insert(state.unreleased.begin(), state.unreleased.end());
  }
  return peers;
}

std::vector<SliceRecord> Rails::underWay() const {
  std::vector<SliceRecord> records;
  for (const auto& [key, state] : steps_) {
    if (!state.started || state.ready) continue;
    SliceRecord record = state.record;
    const auto late = std::ranges::find_if(state.transfers, &Transfer::isMissing);
    if (late != state.transfers.end()) record.peer = late->peer;
    if (late == state.transfers.end() && !state.unsent.empty()) record.peer = state.unsent.begin()->first;
    records.push_back(record);
  }
  return records;
}

bool Rails::needs(int peer, const Watermarks& slicesBelow) const {
  return std::ranges::any_of(steps_, [&](const auto& entry) {
    const auto& [key, state] = entry;
    if (key.slice.sequence >= slicesBelow[key.slice.queue]) return false;
    return state.unsent.contains(peer) || state.unreleased.contains(peer) ||
           std::ranges::any_of(state.transfers, [peer](const Transfer& transfer) {
             return transfer.peer == peer && transfer.isMissing();
           });
  });
}

}  // namespace fairring
