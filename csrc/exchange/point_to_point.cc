#include "exchange/point_to_point.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <utility>

namespace fairring {

namespace {

// The overhead of a message besides its bytes: even an empty one takes some credit.
constexpr std::uint64_t kOverheadBytes = 64;

std::uint64_t charge(std::uint64_t bytes) { return bytes + kOverheadBytes; }

bool isAwaited(const MessageWaiters& waiters) { return waiters && *waiters > 0; }

}  // namespace

PointToPoint::PointToPoint(Loop& loop, int rank, Events events, PointToPointLimits limits)
    : loop_(loop), rank_(rank), events_(std::move(events)), limits_(limits) {}

Channel* PointToPoint::channelTo(int peer) const {
  const auto found = peers_.find(peer);
  return found == peers_.end() ? nullptr : found->second.channel.get();
}

std::vector<int> PointToPoint::connected() const {
  std::vector<int> peers;
  for (const auto& [rank, peer] : peers_) {
    if (peer.channel && !peer.channel->hasEnded()) peers.push_back(rank);
  }
  return peers;
}

void PointToPoint::closeChannels() {
  for (const auto& [rank, peer] : peers_) {
    if (peer.channel) peer.channel->close();
  }
}

PointToPoint::Header PointToPoint::header(Peer& peer, Header::Kind kind, const Label& label, std::uint64_t number) {
  peer.told = peer.taken;
  return {.kind = kind, .context = label.context, .tag = label.tag, .number = number, .taken = peer.taken};
}

void PointToPoint::say(int to, const Header& header) {
  const Message message{.header = onWire(header)};
  peers_[to].channel->send({&message, 1}, nullptr);
}

// --- sending

void PointToPoint::send(Sending sending) {
  assert(loop_.isCurrent());
  const int to = sending.to;
  Peer& peer = peers_[to];
  if (peer.gone) return sending.done(peer.gone);
  events_.reach(to, Reach::Send);
  const std::uint64_t number = peer.sent++;
  const bool isSmall = sending.bytes <= limits_.eagerBytes;
  if (isSmall && peer.eagerSent - peer.eagerTaken + charge(sending.bytes) <= limits_.creditBytes) {
    peer.eagerSent += charge(sending.bytes);
    const Header eager = header(peer, Header::Kind::Eager, sending.label, number);
    return transmit(to, eager, std::move(sending));
  }
  Header announcement = header(peer, Header::Kind::Announcement, sending.label, number);
  announcement.size = sending.bytes;
  sending.since = loop_.eventTime();
  peer.announced.emplace(number, std::move(sending));
  say(to, announcement);
}

void PointToPoint::transmit(int to, const Header& header, Sending sending) {
  Peer& peer = peers_[to];
  peer.underWay[header.number] = std::move(sending.done);
  Message message{.header = onWire(header), .data = sending.data};
  message.header.bytes = sending.bytes;
  peer.channel->send({&message, 1}, [this, to, number = header.number] { onSent(to, number); });
}

void PointToPoint::onSent(int to, std::uint64_t number) {
  const auto node = peers_[to].underWay.extract(number);
  if (node.empty()) return;
  node.mapped()({});
  events_.progress();
}

std::vector<MessageWait> PointToPoint::waits() const {
  assert(loop_.isCurrent());
  std::vector<MessageWait> waits;
  for (const auto& [rank, peer] : peers_) {
    for (const auto& [number, sending] : peer.announced)
      waits.push_back({true, rank, sending.label, sending.since, isAwaited(sending.waiters)});
    for (const auto& [number, envelope] : peer.envelopes) {
      if (!envelope->receive) continue;
      waits.push_back({false, rank, envelope->label, envelope->receive->since, isAwaited(envelope->receive->waiters)});
    }
  }
  for (const auto& [label, receives] : posted_) {
    for (const Receiving& one : receives) waits.push_back({false, one.from, label, one.since, isAwaited(one.waiters)});
  }
  return waits;
}

std::optional<Sending> PointToPoint::takeAnnounced(int from, std::uint64_t number) {
  auto node = peers_[from].announced.extract(number);
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped());
}

void PointToPoint::onGrant(int from, const Header& granted) {
  auto sending = takeAnnounced(from, granted.number);
  if (!sending) return violated(from, "granted memory for a message that does not wait", granted);
  const Header data = header(peers_[from], Header::Kind::Data, sending->label, granted.number);
  transmit(from, data, std::move(*sending));
}

void PointToPoint::onRefusal(int from, const Header& refusal) {
  const auto sending = takeAnnounced(from, refusal.number);
  if (!sending) return violated(from, "refused a message that does not wait", refusal);
  sending->done(tooLong(rank_, from, sending->label, sending->bytes, refusal.size));
}

// --- receiving

void PointToPoint::receive(Receiving receiving) {
  assert(loop_.isCurrent());
  receiving.since = loop_.eventTime();
  if (receiving.from && !peers_[*receiving.from].gone) events_.reach(*receiving.from, Reach::Receive);
  std::list<EnvelopeRef>& waiting = unexpected_[receiving.label];
  const auto found = std::ranges::find_if(
      waiting, [&](const EnvelopeRef& one) { return !receiving.from || one->from == *receiving.from; });
  if (found != waiting.end()) {
    const EnvelopeRef envelope = std::move(*found);
    waiting.erase(found);
    if (waiting.empty()) unexpected_.erase(receiving.label);
    return assign(envelope, std::move(receiving));
  }
  if (waiting.empty()) unexpected_.erase(receiving.label);
  if (receiving.from && peers_[*receiving.from].gone) {
    return receiving.done(peers_[*receiving.from].gone, *receiving.from);
  }
  const Label label = receiving.label;
  posted_[label].push_back(std::move(receiving));
}

// A message begins to arrive, or is announced: it is known from here on.
PointToPoint::EnvelopeRef PointToPoint::open(int from, const Header& header) {
  Peer& peer = peers_[from];
  const bool eager = header.kind == Header::Kind::Eager;
  const std::uint64_t bytes = eager ? header.bytes : header.size;
  if (header.number < peer.next || peer.envelopes.contains(header.number)) {
    violated(from, "sent a second message of one number", header);
    return nullptr;
  }
  if (eager && (bytes > limits_.eagerBytes || peer.held + charge(bytes) > limits_.creditBytes)) {
    violated(from, "sent more than its credit", header);
    return nullptr;
  }
  if (eager) peer.held += charge(bytes);
  auto envelope = std::make_shared<Envelope>();
  envelope->from = from;
  envelope->number = header.number;
  envelope->label = {.context = header.context, .tag = header.tag};
  envelope->bytes = bytes;
  envelope->eager = eager;
  peer.envelopes[header.number] = envelope;
  return envelope;
}

void PointToPoint::matchInOrder(Peer& peer) {
  for (auto next = peer.envelopes.find(peer.next); next != peer.envelopes.end();
       next = peer.envelopes.find(peer.next)) {
    ++peer.next;
    match(EnvelopeRef(next->second));
  }
}

void PointToPoint::match(const EnvelopeRef& envelope) {
  const auto posted = posted_.find(envelope->label);
  if (posted != posted_.end()) {
    std::list<Receiving>& receives = posted->second;
    const auto found =
        std::ranges::find_if(receives, [&](const Receiving& one) { return !one.from || *one.from == envelope->from; });
    if (found != receives.end()) {
      Receiving receive = std::move(*found);
      receives.erase(found);
      if (receives.empty()) posted_.erase(posted);
      return assign(envelope, std::move(receive));
    }
  }
  unexpected_[envelope->label].push_back(envelope);
}

void PointToPoint::assign(const EnvelopeRef& envelope, Receiving receive) {
  if (envelope->bytes > receive.bytes) return refuse(envelope, receive);
  envelope->receive = std::move(receive);
  if (!envelope->eager) {
    return say(envelope->from, header(peers_[envelope->from], Header::Kind::Grant, envelope->label, envelope->number));
  }
  if (envelope->isHere) finish(envelope);
}

void PointToPoint::refuse(const EnvelopeRef& envelope, const Receiving& receive) {
  const int from = envelope->from;
  const Error error = tooLong(from, rank_, envelope->label, envelope->bytes, receive.bytes);
  envelope->isRefused = true;
  if (!envelope->eager) {
    Header refusal = header(peers_[from], Header::Kind::Refusal, envelope->label, envelope->number);
    refusal.size = receive.bytes;
    say(from, refusal);
  }
  if (envelope->isHere) finish(envelope);
  receive.done(error, from);
}

void PointToPoint::onHere(const EnvelopeRef& envelope) {
  envelope->isHere = true;
  Peer& peer = peers_[envelope->from];
  ++peer.came;
  matchInOrder(peer);
  if (envelope->eager && (envelope->receive || envelope->isRefused) && peer.envelopes.contains(envelope->number))
    finish(envelope);
  events_.progress();
}

// The whole message is here, with or without a receive.
void PointToPoint::finish(const EnvelopeRef& envelope) {
  const int from = envelope->from;
  Peer& peer = peers_[from];
  peer.envelopes.erase(envelope->number);
  if (envelope->eager) {
    peer.held -= charge(envelope->bytes);
    peer.taken += charge(envelope->bytes);
    giveCredit(from);
  }
  if (!envelope->receive) return;
  const Receiving receive = std::move(*envelope->receive);
  if (!envelope->aside.empty()) std::memcpy(receive.data, envelope->aside.data(), envelope->bytes);
  receive.done({}, from);
}

// Sent once a quarter of the credit is to be given back. Other messages to the peer give it back as well.
void PointToPoint::giveCredit(int to) {
  Peer& peer = peers_[to];
  if (peer.taken - peer.told < limits_.creditBytes / 4) return;
  say(to, header(peer, Header::Kind::CreditUpdate, {}, 0));
}

std::byte* PointToPoint::place(int from, const MessageHeader& message) {
  const auto header = std::bit_cast<Header>(message);
  Peer& peer = peers_[from];
  if (header.kind == Header::Kind::Data) {
    const auto found = peer.envelopes.find(header.number);
    Envelope* const envelope = found == peer.envelopes.end() ? nullptr : found->second.get();
    if (envelope != nullptr && !envelope->eager && !envelope->isPlaced && envelope->receive &&
        envelope->bytes == header.bytes) {
      envelope->isPlaced = true;
      return envelope->receive->data;
    }
    violated(from, "sent a message that has no place", header);
    return nullptr;
  }
  if (header.kind != Header::Kind::Eager) {
    violated(from, "sent bytes with what has none", header);
    return nullptr;
  }
  const EnvelopeRef envelope = open(from, header);
  if (!envelope) return nullptr;
  matchInOrder(peer);
  if (envelope->receive) return envelope->receive->data;
  envelope->aside.resize(header.bytes);
  return envelope->aside.data();
}

void PointToPoint::arrived(int from, const MessageHeader& message) {
  const auto header = std::bit_cast<Header>(message);
  Peer& peer = peers_[from];
  if (header.taken > peer.eagerSent) return violated(from, "gave back more than was sent", header);
  peer.eagerTaken = std::max(peer.eagerTaken, header.taken);
  switch (header.kind) {
    case Header::Kind::Grant: return onGrant(from, header);
    case Header::Kind::Refusal: return onRefusal(from, header);
    case Header::Kind::Announcement:
      if (const EnvelopeRef envelope = open(from, header)) onHere(envelope);
      return;
    case Header::Kind::Eager:
      if (header.bytes == 0) {
        if (const EnvelopeRef envelope = open(from, header)) onHere(envelope);
      } else if (const auto found = peer.envelopes.find(header.number); found != peer.envelopes.end()) {
        onHere(EnvelopeRef(found->second));
      }
      return;
    case Header::Kind::Data:
      if (const auto found = peer.envelopes.find(header.number); found != peer.envelopes.end()) {
        const EnvelopeRef envelope = found->second;
        const bool isWhole = header.bytes == envelope->bytes && (header.bytes == 0 || envelope->isPlaced);
        if (!envelope->eager && envelope->receive && isWhole) {
          finish(envelope);
          return events_.progress();
        }
      }
      return violated(from, "sent a message that has no place", header);
    case Header::Kind::CreditUpdate: return;
  }
  violated(from, "sent a message of no kind of these", header);
}

void PointToPoint::ended(int peer, const Error& error) { events_.channelEnded(peer, error); }

// --- the end

bool PointToPoint::waitsFor(int peer) const {
  const auto found = peers_.find(peer);
  if (found != peers_.end()) {
    if (!found->second.announced.empty() || !found->second.underWay.empty()) return true;
    if (std::ranges::any_of(found->second.envelopes, [](const auto& one) { return one.second->receive.has_value(); }))
      return true;
  }
  return std::ranges::any_of(posted_, [peer](const auto& entry) {
    return std::ranges::any_of(entry.second, [peer](const Receiving& one) { return one.from == peer; });
  });
}

bool PointToPoint::needs(int peer, std::uint64_t messagesSent) const {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return messagesSent > 0;
  return found->second.came < messagesSent || !found->second.underWay.empty() ||
         std::ranges::any_of(found->second.envelopes, [](const auto& one) { return one.second->receive.has_value(); });
}

std::uint64_t PointToPoint::sentTo(int peer) const {
  const auto found = peers_.find(peer);
  return found == peers_.end() ? 0 : found->second.sent;
}

bool PointToPoint::hasLeft(int peer) const {
  const auto found = peers_.find(peer);
  return found != peers_.end() && found->second.gone;
}

void PointToPoint::leave(int peer, const Error& error) {
  Peer& gone = peers_[peer];
  if (!gone.gone) gone.gone = error;
  std::vector<std::function<void()>> ends;
  for (auto& [number, sending] : std::exchange(gone.announced, {}))
    ends.emplace_back([done = std::move(sending.done), error] { done(error); });
  for (auto& [label, receives] : posted_) {
    std::erase_if(receives, [&](Receiving& receive) {
      if (receive.from != peer) return false;
      ends.emplace_back([done = std::move(receive.done), peer, error] { done(error, peer); });
      return true;
    });
  }
  // An announced message without a receive never comes.
  std::erase_if(gone.envelopes, [&](const auto& entry) {
    const bool isLost = !entry.second->eager && !entry.second->receive;
    if (isLost) forget(entry.second);
    return isLost;
  });
  for (const auto& end : ends) end();
}

// Messages that have arrived whole can still be received.
void PointToPoint::lose(int peer, const Error& error) {
  if (Channel* const channel = channelTo(peer)) channel->close();
  leave(peer, error);
  Peer& gone = peers_[peer];
  std::vector<std::function<void()>> ends;
  for (auto& [number, done] : std::exchange(gone.underWay, {}))
    ends.emplace_back([done = std::move(done), error] { done(error); });
  std::erase_if(gone.envelopes, [&](const auto& entry) {
    Envelope& envelope = *entry.second;
    if (envelope.eager && envelope.isHere) return false;
    forget(entry.second);
    if (envelope.receive)
      ends.emplace_back([done = std::move(envelope.receive->done), peer, error] { done(error, peer); });
    return true;
  });
  for (const auto& end : ends) end();
}

void PointToPoint::forget(const EnvelopeRef& envelope) {
  const auto waiting = unexpected_.find(envelope->label);
  if (waiting == unexpected_.end()) return;
  waiting->second.remove(envelope);
  if (waiting->second.empty()) unexpected_.erase(waiting);
}

void PointToPoint::fail(const Error& error) {
  closeChannels();
  const auto peers = std::exchange(peers_, {});
  const auto posted = std::exchange(posted_, {});
  unexpected_.clear();
  for (const auto& [number, peer] : peers) {
    for (const auto& [message, sending] : peer.announced) sending.done(error);
    for (const auto& [message, done] : peer.underWay) done(error);
    for (const auto& [message, envelope] : peer.envelopes) {
      if (envelope->receive) envelope->receive->done(error, number);
    }
  }
  for (const auto& [label, receives] : posted) {
    for (const Receiving& receive : receives) receive.done(error, receive.from.value_or(-1));
  }
}

void PointToPoint::violated(int by, const char* how, const Header& header) {
  events_.failed(makeError(ErrorKind::Connection, "rank ", by, " ", how, " to rank ", rank_, " (message ",
                           header.number, ", tag ", header.tag, ", ", header.bytes, " bytes)")
                     .about({by}));
}

Error PointToPoint::tooLong(int from, int to, const Label& label, std::uint64_t bytes, std::uint64_t room) const {
  return makeError(ErrorKind::Mismatch, "rank ", from, " sent ", bytes, " bytes with tag ", label.tag, " to rank ", to,
                   ", whose receive has room for ", room, ": they must agree on the size")
      .about({from, to});
}

}  // namespace fairring
