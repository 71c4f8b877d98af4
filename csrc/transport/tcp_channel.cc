#include "transport/tcp_channel.h"

#include <cassert>
#include <limits>
#include <utility>

namespace fairring {

namespace {

constexpr double kSlackSeconds = 1e-3;  // by which a lane may finish later than all lanes together would
// A chunk may arrive so much later over a free lane than over the fastest one. Its message waits for it, and so does
// everything that follows from the message, even if there is enough else to send meanwhile. Must be longer than an
// acknowledgement takes, so that a slow lane always has something to carry.
constexpr double kMostLagSeconds = 8e-3;

}  // namespace

TcpChannel::TcpChannel(Loop& loop, int peer, MessageReceiver& receiver, Relinking relinking,
                       std::shared_ptr<SpareMemory> spare)
    : loop_(loop),
      peer_(peer),
      receiver_(receiver),
      relinking_(std::move(relinking)),
      sendQueue_(std::move(spare)),
      reassembly_(peer, receiver) {}

TcpChannel::~TcpChannel() { close(); }

void TcpChannel::add(std::uint32_t index, Stream stream) {
  assert(loop_.isCurrent());
  if (closed_) return;
  if (const auto old = lanes_.extract(index)) {  // the peer has noticed the break before this rank did
    old.mapped()->drop();
    countGone(*old.mapped());
    sendQueue_.takeBack(old.mapped()->takeUnacknowledged());
  }
  loop_.cancel(std::exchange(patience_, 0));
  const auto lane = std::make_shared<Lane>(loop_, weak_from_this(), reassembly_, index, std::move(stream));
  lanes_[index] = lane;
  lane->start();
  pump();
}

void TcpChannel::send(std::span<const Message> messages, Released released) {
  assert(loop_.isCurrent());
  if (closed_ || messages.empty()) return;
  sendQueue_.put(messages, std::move(released));
  if (std::exchange(pumping_, true)) return;
  // It is sent in the next turn, which follows at once: other messages of this turn to the peer share the batch.
  loop_.post([weak = weak_from_this()] {
    const auto channel = weak.lock();
    if (!channel) return;
    channel->pumping_ = false;
    channel->pump();
  });
}

std::uint64_t TcpChannel::bytesSeen() const {
  std::uint64_t bytes = seenOfGone_;
  for (const auto& [index, lane] : lanes_) bytes += lane->bytesSeen();
  return bytes;
}

std::uint64_t TcpChannel::sends() const {
  std::uint64_t sends = sendsOfGone_;
  for (const auto& [index, lane] : lanes_) sends += lane->sends();
  return sends;
}

Packets TcpChannel::packets() const {
  Packets all;
  for (const auto& [index, lane] : lanes_) {
    const Packets one = lane->packets();
    all.sent += one.sent;
    all.again += one.again;
  }
  return all;
}

void TcpChannel::pump() {
  while (!closed_ && !sendQueue_.empty()) {
    Lane* lane = laneForNext();
    if (lane == nullptr) break;
    SendQueue::Chunk chunk = sendQueue_.take(lane->chunkBytes(lanes_.size() == 1));
    const bool isLarge = !chunk.isSmall();
    lane->give(std::move(chunk));
    if (isLarge) lane->flush();
  }
  for (const auto& [index, lane] : lanes_) lane->flush();
  callReleased();
}

// The lane with the earliest estimated finish of the next chunk. A lane with room now is used instead if it would not
// finish much later, nor later than all lanes together with the whole backlog. Null: it is better to wait.
Lane* TcpChannel::laneForNext() {
  struct Offer {
    Lane* lane = nullptr;
    double seconds = std::numeric_limits<double>::infinity();
  };
  Offer quickest;
  Offer free;
  double rate = 0;
  std::uint64_t bytes = sendQueue_.bytes();
  for (const auto& [index, lane] : lanes_) {
    const Offer offer{lane.get(), lane->secondsFor(sendQueue_.nextBytes(lane->chunkBytes(lanes_.size() == 1)))};
    rate += lane->bytesPerSecond();
    bytes += lane->outstanding();
    if (offer.seconds < quickest.seconds) quickest = offer;
    if (lane->hasRoom() && offer.seconds < free.seconds) free = offer;
  }
  if (free.lane == nullptr || free.lane == quickest.lane) return free.lane;
  if (free.seconds > static_cast<double>(bytes) / rate + kSlackSeconds) return nullptr;
  // An idle lane is tried all the same: it may be faster by now.
  const bool isIdle = free.lane->outstanding() == 0;
  return isIdle || free.seconds <= quickest.seconds + kMostLagSeconds ? free.lane : nullptr;
}

// Handlers may send.
void TcpChannel::callReleased() {
  for (const Released& released : sendQueue_.takeReleased()) released();
}

void TcpChannel::onGone(std::uint32_t index, const Error& error) {
  const auto node = lanes_.extract(index);
  Lane& lane = *node.mapped();
  peerClosed_ = peerClosed_ || lane.peerHasEnded();
  countGone(lane);
  sendQueue_.takeBack(lane.takeUnacknowledged());
  callReleased();  // its last data may have been acknowledgements
  const bool again = relinking_.relink && !peerClosed_ && !peerLeaves_;
  if (!again && lanes_.empty()) return end(peerClosed_ ? Error() : error);
  if (again) {
    if (lanes_.empty()) awaitLanes(error);
    relinking_.relink(peer_, index);
  }
  pump();
}

void TcpChannel::awaitLanes(const Error& error) {
  patience_ = loop_.at(loop_.now() + relinking_.patience, [this, error] {
    patience_ = 0;
    end(makeError(ErrorKind::Connection, error ? error.text() : "all connections were closed", "; for ",
                  relinking_.patience.count(), " ms none could be made anew"));
  });
}

void TcpChannel::onFault(const Error& error) { end(error); }

void TcpChannel::peerLeaves() {
  peerLeaves_ = true;
  if (lanes_.empty()) end({});
}

void TcpChannel::close() {
  if (std::exchange(closed_, true)) return;
  for (const auto& [index, lane] : lanes_) lane->sayEnd();
  dropAll();
}

void TcpChannel::end(const Error& error) {
  if (std::exchange(closed_, true)) return;
  const auto self = shared_from_this();
  dropAll();
  receiver_.ended(peer_, error ? makeError(error.kind(), "connection with rank ", peer_, ": ", error.text()) : error);
}

void TcpChannel::dropAll() {
  loop_.cancel(patience_);
  for (const auto& [index, lane] : std::exchange(lanes_, {})) {
    lane->drop();
    countGone(*lane);
  }
  sendQueue_.clear();
}

void TcpChannel::countGone(const Lane& lane) {
  seenOfGone_ += lane.bytesSeen();
  sendsOfGone_ += lane.sends();
}

namespace {

ChannelsByPeer makeTcpChannels(Loop& loop, const ChannelSettings& settings, MessageReceiver& receiver) {
  ChannelsByPeer channels;
  const auto spare = std::make_shared<SpareMemory>();
  for (const int peer : settings.peers)
    channels[peer] = std::make_shared<TcpChannel>(loop, peer, receiver, settings.relinking, spare);
  return channels;
}

}  // namespace

Transport tcpTransport(std::uint32_t lanes) {
  return {.name = "tcp", .make = makeTcpChannels, .takesLanes = true, .tensorsMayBeImages = true, .lanes = lanes};
}

}  // namespace fairring
