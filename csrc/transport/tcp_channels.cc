#include "transport/tcp_channels.h"

#include <cassert>

namespace fairring {

TcpChannels::TcpChannels(Loop& loop, MessageReceiver& receiver, Relinking relinking)
    : loop_(loop), receiver_(receiver), relinking_(std::move(relinking)) {}

TcpChannels::~TcpChannels() { close(); }

void TcpChannels::expect(int peer) {
  assert(loop_.isCurrent());
  const auto [found, isNew] = channels_.try_emplace(peer);
  if (!isNew) return;
  found->second = std::make_shared<TcpChannel>(loop_, peer, receiver_, relinking_, spare_,
                                               [this, peer](const Error& error) { onEnded(peer, error); });
}

void TcpChannels::add(int peer, std::uint32_t lane, Stream stream) {
  expect(peer);
  if (const auto channel = channels_.at(peer)) channel->add(lane, std::move(stream));
}

std::vector<int> TcpChannels::peers() const {
  std::vector<int> peers;
  for (const auto& [peer, channel] : channels_) {
    if (channel) peers.push_back(peer);
  }
  return peers;
}

void TcpChannels::drop(int peer) {
  if (const auto channel = take(peer)) channel->close();
}

std::shared_ptr<TcpChannel> TcpChannels::take(int peer) {
  auto channel = std::exchange(channels_[peer], nullptr);
  if (channel) sendsOfEnded_[peer] = channel->sends();
  return channel;
}

void TcpChannels::peerLeaves(int peer) {
  const auto found = channels_.find(peer);
  if (found == channels_.end()) return;
  if (const auto channel = found->second) channel->peerLeaves();
}

void TcpChannels::send(int peer, std::span<const Message> messages, Released released) {
  assert(loop_.isCurrent());
  const auto found = channels_.find(peer);
  if (found == channels_.end() || !found->second || messages.empty()) return;
  found->second->send(messages, std::move(released));
}

std::uint64_t TcpChannels::bytesSeen(int peer) const {
  const auto found = channels_.find(peer);
  return found == channels_.end() || !found->second ? 0 : found->second->bytesSeen();
}

Packets TcpChannels::packets(int peer) const {
  const auto found = channels_.find(peer);
  return found != channels_.end() && found->second ? found->second->packets() : Packets{};
}

std::uint64_t TcpChannels::sends(int peer) const {
  const auto found = channels_.find(peer);
  if (found != channels_.end() && found->second) return found->second->sends();
  const auto ended = sendsOfEnded_.find(peer);
  return ended == sendsOfEnded_.end() ? 0 : ended->second;
}

void TcpChannels::close() {
  for (const int peer : peers()) drop(peer);
  channels_.clear();
}

void TcpChannels::onEnded(int peer, const Error& error) {
  const auto keepAlive = take(peer);
  receiver_.ended(peer, error ? makeError(error.kind(), "connection with rank ", peer, ": ", error.text()) : error);
}

}  // namespace fairring
