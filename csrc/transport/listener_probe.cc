#include "transport/listener_probe.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cassert>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"

namespace fairring {

ListenerProbe::ListenerProbe(Loop& loop, Pace pace, Events events)
    : loop_(loop), pace_(pace), events_(std::move(events)) {}

ListenerProbe::~ListenerProbe() {
  for (auto& [peer, listener] : listeners_) endProbe(listener);
  loop_.cancel(timer_);
}

void ListenerProbe::watch(int peer, const SocketAddress& listener) {
  assert(loop_.isCurrent());
  if (listeners_.empty()) probeLater();
  const auto [found, isNew] = listeners_.try_emplace(peer);
  if (isNew) found->second.address = listener;
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
  due_ = loop_.now() + pace_.every;
  timer_ = loop_.at(due_, [this] { probeAll(); });
}

// A process that was stopped itself finds everybody silent when it goes on: it listens first.
void ListenerProbe::probeAll() {
  const auto now = loop_.now();
  const bool overslept = now - due_ > pace_.patience / 2;
  probeLater();
  std::vector<int> silent;
  for (auto& [peer, listener] : listeners_) {
    if (overslept && listener.unansweredSince) listener.unansweredSince = now;
    const bool isOverdue = listener.unansweredSince && now - *listener.unansweredSince >= pace_.patience;
    // An answer may be there, and this timer comes before it is read.
    if (std::exchange(listener.isOverdue, isOverdue) && isOverdue) {
      silent.push_back(peer);
    } else if (isDue(listener)) {
      begin(peer, listener);
    }
  }
  for (const int peer : silent) {
    const Listener& listener = listeners_.at(peer);
    const std::string trouble = listener.trouble;
    const bool isTaken = listener.isTaken;
    const auto silence = std::chrono::round<std::chrono::milliseconds>(now - listener.unansweredSince.value_or(now));
    forget(peer);
    if (isTaken) {
      events_.stopped(peer, silence);
      continue;
    }
    events_.silent(peer, makeError(ErrorKind::Timeout, "no answer to any probe of its listener within ",
                                   pace_.patience.count(), " ms", trouble.empty() ? "" : concat(" (", trouble, ")")));
  }
}

// One that stays without an answer is made anew: TCP itself would try again less and less often, and a network that
// comes back in between would be found too late.
bool ListenerProbe::isDue(const Listener& listener) const {
  return !listener.probe || loop_.now() - listener.begun >= pace_.patience / 4;
}

void ListenerProbe::begin(int peer, Listener& listener) {
  endProbe(listener);
  listener.begun = loop_.now();
  listener.isTaken = false;
  if (!listener.unansweredSince) listener.unansweredSince = listener.begun;
  try {
    listener.probe = startConnect(listener.address);
    loop_.watch(listener.probe.get(), EPOLLOUT, [this, peer](std::uint32_t) { onReady(peer); });
  } catch (const Failure& failure) {  // no route, or no descriptor left: the next probe may have one
    listener.probe = {};
    listener.trouble = failure.error().text();
  }
}

void ListenerProbe::onReady(int peer) {
  Listener& listener = listeners_.at(peer);
  listener.isTaken ? answered(listener) : onConnected(peer, listener);
}

void ListenerProbe::onConnected(int peer, Listener& listener) {
  const int code = finishConnect(listener.probe);
  const bool refused = code == ECONNREFUSED;
  const bool isSecond = std::exchange(listener.refused, refused) && refused;
  listener.isTaken = code == 0;
  if (listener.isTaken) {
    ::shutdown(listener.probe.get(), SHUT_WR);
    return loop_.rewatch(listener.probe.get(), EPOLLIN);
  }
  if (refused) {
    answered(listener);
  } else {
    listener.trouble = concat("connect: ", std::generic_category().message(code));
    endProbe(listener);
  }
  if (!isSecond) return;
  forget(peer);
  events_.refused(peer);
}

void ListenerProbe::answered(Listener& listener) {
  listener.unansweredSince.reset();
  endProbe(listener);
}

void ListenerProbe::endProbe(Listener& listener) {
  if (!listener.probe) return;
  loop_.unwatch(listener.probe.get());
  listener.probe = {};
}

}  // namespace fairring
