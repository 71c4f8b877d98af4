#include "transport/tcp_pipes.h"

#include <cassert>

namespace fairring {

TcpPipes::TcpPipes(Loop& loop, PipeReceiver& receiver, Relinking relinking)
    : loop_(loop), receiver_(receiver), relinking_(std::move(relinking)) {}

TcpPipes::~TcpPipes() { close(); }

void TcpPipes::add(int peer, std::uint32_t lane, Wire wire) {
  assert(loop_.isCurrent());
  const auto [found, isNew] = bundles_.try_emplace(peer);
  if (isNew) {
    found->second = std::make_shared<Bundle>(loop_, peer, receiver_, relinking_,
                                             [this, peer](const Error& error) { onEnded(peer, error); });
  }
  if (const auto bundle = found->second) bundle->add(lane, std::move(wire));
}

void TcpPipes::peerLeaves(int peer) {
  const auto found = bundles_.find(peer);
  if (found == bundles_.end()) return;
  if (const auto bundle = found->second) bundle->peerLeaves();
}

void TcpPipes::send(int peer, std::span<const Part> parts, Released released) {
  assert(loop_.isCurrent());
  const auto found = bundles_.find(peer);
  if (found == bundles_.end() || !found->second || parts.empty()) return;
  found->second->send(parts, std::move(released));
}

std::uint64_t TcpPipes::bytesSeen(int peer) const {
  const auto found = bundles_.find(peer);
  return found == bundles_.end() || !found->second ? 0 : found->second->bytesSeen();
}

std::uint64_t TcpPipes::sends(int peer) const {
  const auto found = bundles_.find(peer);
  return found == bundles_.end() || !found->second ? 0 : found->second->sends();
}

bool TcpPipes::drained() const {
  for (const auto& [peer, bundle] : bundles_) {
    if (bundle && !bundle->drained()) return false;
  }
  return true;
}

void TcpPipes::close() {
  for (const auto& [peer, bundle] : std::exchange(bundles_, {})) {
    if (bundle) bundle->close();
  }
}

void TcpPipes::onEnded(int peer, const Error& error) {
  const auto keepAlive = std::exchange(bundles_[peer], nullptr);
  receiver_.ended(peer, error ? makeError(error.kind(), "connection with rank ", peer, ": ", error.text()) : error);
}

}  // namespace fairring
