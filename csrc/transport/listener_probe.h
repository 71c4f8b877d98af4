// The higher of two ranks connects, at its first call (connector.h). Until then the lower one has no connection whose
// end would tell it that the other's process has ended. So it probes from time to time whether that process's listener
// (acceptor.h) is still there. A probe is a connection that is closed again without sending anything. Only two refusals
// in a row count: a firewall that is being changed may refuse for a moment. A peer that does not answer may be slow or
// unreachable for a while; the call's timer covers that case. On the loop only.
#pragma once

#include <chrono>
#include <functional>
#include <map>

#include "base/descriptor.h"
#include "base/loop.h"
#include "transport/socket.h"

namespace fairring {

class ListenerProbe {
 public:
  // Once for a peer; never from within watch() or forget().
  using OnRefused = std::function<void(int peer)>;

  ListenerProbe(Loop& loop, std::chrono::milliseconds every, OnRefused onRefused);
  ListenerProbe(const ListenerProbe&) = delete;
  ListenerProbe& operator=(const ListenerProbe&) = delete;
  ~ListenerProbe();

  void watch(int peer, const SocketAddress& listener);  // of TCP
  void forget(int peer);                                // it has come; no effect if it is not watched

 private:
  struct Listener {
    SocketAddress address;
    Descriptor probe;      // under way, or none
    bool refused = false;  // the last one
  };

  void probeAll();
  void begin(int peer, Listener& listener);
  void onAnswer(int peer);
  void endProbe(Listener& listener);
  void probeLater();

  Loop& loop_;
  const std::chrono::milliseconds every_;
  const OnRefused onRefused_;
  std::map<int, Listener> listeners_;
  Loop::TimerId timer_ = 0;  // while there are listeners
};

}  // namespace fairring
