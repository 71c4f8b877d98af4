#include "transport/listener_probe.h"

#include <sys/epoll.h>

#include <cassert>
#include <cerrno>
#include <utility>

#include "base/error.h"

namespace fairring {

ListenerProbe::ListenerProbe(Loop& loop, std::chrono::milliseconds every, OnRefused onRefused)
    : loop_(loop), every_(every), onRefused_(std::move(onRefused)) {}

ListenerProbe::~ListenerProbe() {
  for (auto& [peer, listener] : listeners_) endProbe(listener);
  loop_.cancel(timer_);
}

void ListenerProbe::watch(int peer, const SocketAddress& listener) {
  assert(loop_.isCurrent());
  if (listeners_.empty()) probeLater();
  listeners_.try_emplace(peer, Listener{listener, {}});
}

void ListenerProbe::forget(int peer) {
  assert(loop_.isCurrent());
  const auto found = listeners_.find(peer);
  if (found == listeners_.end()) return;
  endProbe(found->second);
  listeners_.erase(found);
  if (listeners_.empty()) loop_.cancel(timer_);
}

void ListenerProbe::probeLater() {
  timer_ = loop_.at(loop_.now() + every_, [this] { probeAll(); });
}

void ListenerProbe::probeAll() {
  probeLater();
  for (auto& [peer, listener] : listeners_) {
    if (!listener.probe) begin(peer, listener);
  }
}

void ListenerProbe::begin(int peer, Listener& listener) {
  try {
    listener.probe = startConnect(listener.address);
    loop_.watch(listener.probe.get(), EPOLLOUT, [this, peer](std::uint32_t) { onAnswer(peer); });
  } catch (const Failure&) {  // no route, or no descriptor left: the next probe may have one
    listener.probe = {};
  }
}

void ListenerProbe::onAnswer(int peer) {
  const auto found = listeners_.find(peer);
  Listener& listener = found->second;
  const bool refused = finishConnect(listener.probe) == ECONNREFUSED;
  endProbe(listener);
  if (!std::exchange(listener.refused, refused) || !refused) return;
  forget(peer);
  onRefused_(peer);
}

void ListenerProbe::endProbe(Listener& listener) {
  if (!listener.probe) return;
  loop_.unwatch(listener.probe.get());
  listener.probe = {};
}

}  // namespace fairring
