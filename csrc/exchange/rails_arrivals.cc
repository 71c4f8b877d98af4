// The part of Rails that handles messages and events from the peers.
#include <algorithm>
#include <bit>
#include <cstring>

#include "exchange/rails.h"

namespace fairring {

namespace {

// A peer with more would be further ahead than any staging allows.
constexpr std::size_t kMostEarly = 4096;

}  // namespace

void Rails::adopt(const Key& key) {
  const auto found = steps_.find(key);
  if (found == steps_.end() || !found->second.promised) return;
  for (const auto& [peer, unexpected] : unexpected_.take(key.slice.onWire(), key.step)) {
    if (!agrees(peer, unexpected.header, *found->second.slice)) return;
    Transfer* transfer = expected(peer, unexpected.header);
    if (transfer == nullptr || transfer->placed || transfer->receiveBytes != unexpected.header.bytes) {
      refuse(peer, unexpected.header);
      return;
    }
    std::memcpy(transfer->receiveAt, unexpected.bytes.data(), unexpected.bytes.size());
    transfer->placed = transfer->here = true;
    recordArrival(peer, *transfer, found->second);
    found->second.slice->refuse(unexpected.header.refused);
    --found->second.missing;
  }
  advance(key);
}

// The peer has this slice: messages held back for lack of credit may go.
void Rails::heard(int peer, SliceId slice) {
  const auto [queue, sequence] = slice;
  Neighbour& there = neighbours_[peer];
  there.credit[queue].heard(sequence);
  const auto first = there.held.lower_bound({{queue, 0}, 0});
  for (const Key& key : std::vector<Key>(first, there.held.lower_bound({{queue, sequence + 1}, 0}))) {
    if (maySend(peer, key)) sendTo(peer, key);
  }
}

void Rails::tooFarAhead(const char* what, int peer, SliceId slice) {
  troubles_.failed(makeError(ErrorKind::Connection, "rank ", peer, " ", what, " for slice ", slice.onWire(),
                             ", far beyond what its staging can hold"));
}

void Rails::onCreditRequest(int peer, const SliceHeader& header) {
  Neighbour& there = neighbours_[peer];
  const SliceId slice = SliceId::fromWire(header.slice);
  if (!isAdmitted(slice)) {
    there.asked.insert(slice);
    if (there.asked.size() > kMostEarly) tooFarAhead("asked whether there is memory", peer, slice);
  } else if (there.told[slice.queue] <= slice.sequence) {
    say(SliceHeader::Kind::CreditUpdate, peer, slice, header.signature);
  }
}

void Rails::onGrant(int peer, const SliceHeader& header) {
  const Key key = keyOf(header);
  const auto found = steps_.find(key);
  if (found == steps_.end() && isAdmitted(key.slice)) {
    return troubles_.differs(peer);  // the slice is over here, or was never needed
  }
  if (found == steps_.end()) {
    earlyGrants_[key].emplace(peer, header);
    if (earlyGrants_.size() > kMostEarly) tooFarAhead("granted memory", peer, key.slice);
    return;
  }
  InFlight& state = found->second;
  if (!agrees(peer, header, *state.slice)) return;
  state.granted.insert(peer);
  if (state.offered && state.unsent.contains(peer)) sendTo(peer, key);
}

Transfer* Rails::expected(int peer, const SliceHeader& header) {
  const auto found = steps_.find(keyOf(header));
  if (found == steps_.end()) return nullptr;
  std::vector<Transfer>& transfers = found->second.transfers;
  const auto transfer = std::ranges::find_if(
      transfers, [&](const Transfer& candidate) { return candidate.peer == peer && candidate.rail == header.rail; });
  return transfer == transfers.end() ? nullptr : &*transfer;
}

std::byte* Rails::refuse(int peer, const SliceHeader& header) {
  troubles_.failed(makeError(ErrorKind::Connection, "rank ", peer, " sent a part that rank ", rank_,
                             " has no place for: slice ", header.slice, ", step ", header.step, ", rail ", header.rail,
                             ", ", header.bytes, " bytes")
                       .about({peer}));
  return nullptr;
}

std::byte* Rails::place(int peer, const MessageHeader& message) {
  const auto header = std::bit_cast<SliceHeader>(message);
  if (header.kind != SliceHeader::Kind::Data) return refuse(peer, header);
  const Key key = keyOf(header);
  const auto found = steps_.find(key);
  if (found == steps_.end()) {
    if (isAdmitted(key.slice)) {
      troubles_.differs(peer);  // the slice is over here, or was never needed
      return nullptr;
    }
    std::byte* aside = unexpected_.place(peer, header);
    return aside != nullptr ? aside : refuse(peer, header);
  }
  if (!agrees(peer, header, *found->second.slice)) return nullptr;
  Transfer* transfer = expected(peer, header);
  const bool fits = transfer != nullptr && transfer->receiveBytes == header.bytes;
  if (!fits || transfer->placed) return refuse(peer, header);
  if (!found->second.promised) {
    std::byte* aside = unexpected_.place(peer, header);
    return aside != nullptr ? aside : refuse(peer, header);
  }
  transfer->placed = true;
  transfer->placedAt = timeBy(recorder_, transfer->receiveBytes);
  return transfer->receiveAt;
}

void Rails::arrived(int peer, const MessageHeader& message) {
  const auto header = std::bit_cast<SliceHeader>(message);
  if (!header.isKnown()) {
    return troubles_.failed(makeError(ErrorKind::Connection, "rank ", peer, " sent a message of kind ", message.kind,
                                      ", which slices do not have")
                                .about({peer}));
  }
  const Key key = keyOf(header);
  heard(peer, key.slice);
  if (header.kind == SliceHeader::Kind::CreditUpdate) return;
  if (header.kind == SliceHeader::Kind::Grant) return onGrant(peer, header);
  if (header.kind == SliceHeader::Kind::CreditRequest) return onCreditRequest(peer, header);
  // No rank sends a part without bytes. It would end the arrival of the part whose name it has.
  if (header.bytes == 0) {
    refuse(peer, header);
    return;
  }
  if (unexpected_.arrived(peer, header)) return adopt(key);
  Transfer* transfer = expected(peer, header);
  if (transfer == nullptr || !transfer->placed || transfer->here) return;  // the slice is over here
  transfer->here = true;
  InFlight& state = steps_.at(key);
  recordArrival(peer, *transfer, state);
  state.slice->refuse(header.refused);
  --state.missing;
  advance(key);
}

void Rails::ended(int peer, const Error& error) { onChannelEnded(peer, error); }

}  // namespace fairring
