#include "transport/tcp_channels.h"

#include <cassert>

namespace fairring {

TcpChannels::TcpChannels(Loop& loop, MessageReceiver& receiver, Relinking relinking)
    : loop_(loop), receiver_(receiver), relinking_(std::move(relinking)) {}

TcpChannels::~TcpChannels() { close(); }

void TcpChannels::add(int peer, std::uint32_t lane, Stream stream) {
  assert(loop_.isCurrent());
  const auto [found, isNew] = channels_.try_emplace(peer);
  if (isNew) {
    found->second = std::make_shared<TcpChannel>(loop_, peer, receiver_, relinking_,
                                                 [this, peer](const Error& error) { onEnded(peer, error); });
  }
  if (const auto channel = found->second) channel->add(lane, std::move(stream));
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

std::uint64_t TcpChannels::sends(int peer) const {
  const auto found = channels_.find(peer);
  return found == channels_.end() || !found->second ? 0 : found->second->sends();
}

bool TcpChannels::drained() const {
  for (const auto& [peer, channel] : channels_) {
    if (channel && !channel->drained()) return false;
  }
  return true;
}

void TcpChannels::close() {
  for (const auto& [peer, channel] : std::exchange(channels_, {})) {
    if (channel) channel->close();
  }
}

void TcpChannels::onEnded(int peer, const Error& error) {
  const auto keepAlive = std::exchange(channels_[peer], nullptr);
  receiver_.ended(peer, error ? makeError(error.kind(), "connection with rank ", peer, ": ", error.text()) : error);
}

}  // namespace fairring
