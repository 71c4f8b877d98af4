// Of two ranks the higher connects, at its first call, whenever that is (connector.h). Until then nothing that breaks
// would tell the lower one that the higher one's process has ended; so it probes now and then whether the listener of
// the other's process (acceptor.h) is still there. A probe is a connection that is closed again without a word. Only
// two refusals in a row count, for a firewall that is being changed may refuse for a moment: who does not answer may be
// slow, or out of reach for a while, and the call's timer sees to it. On the loop only.
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
  void forget(int peer);                                // it has come; nothing where it is not watched

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
