// The higher of two ranks connects, at its first call (connector.h). Until then the lower one has no connection whose
// end would tell it that the other's process has ended. So it probes from time to time whether that process's listener
// (acceptor.h) is still there. A probe is a connection that ends without sending anything; the process has answered
// when it has closed its side. The kernel of a stopped one takes connections, and nothing closes them. Only two
// refusals in a row count: a firewall that is being changed may refuse for a moment. A peer that does not answer may be
// unreachable, or too busy, for a while, so it counts only after the patience without any answer. On the loop only.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/loop.h"
#include "transport/socket.h"

namespace fairring {

class ListenerProbe {
 public:
  struct Pace {
    std::chrono::milliseconds every;
    std::chrono::milliseconds patience;
  };
  struct Events {  // one of them, once for a peer; never from within watch() or forget()
    std::function<void(int peer)> refused;
    std::function<void(int peer, const Error&)> silent;
    std::function<void(int peer, std::chrono::milliseconds)> stopped;  // it is reached, and its process does nothing
  };

  ListenerProbe(Loop& loop, Pace pace, Events events);
  ListenerProbe(const ListenerProbe&) = delete;
  ListenerProbe& operator=(const ListenerProbe&) = delete;
  ~ListenerProbe();

  void watch(int peer, const SocketAddress& listener);  // of TCP
  void forget(int peer);                                // it has come; no effect if it is not watched

 private:
  struct Listener {
    SocketAddress address;
    Descriptor probe;  // under way, or none
    Loop::Clock::time_point begun;
    std::optional<Loop::Clock::time_point> unansweredSince;  // the first of those without an answer
    std::string trouble;                                     // why the last of those had none; empty: nothing came back
    bool refused = false;                                    // the last of all
    bool isOverdue = false;                                  // when it was last looked at
    bool isTaken = false;                                    // the last of all, by the other side's kernel at least
  };

  void probeAll();
  void begin(int peer, Listener& listener);
  void onReady(int peer);
  void onConnected(int peer, Listener& listener);
  void answered(Listener& listener);
  void endProbe(Listener& listener);
  void probeLater();
  bool isDue(const Listener& listener) const;

  Loop& loop_;
  const Pace pace_;
  const Events events_;
  std::map<int, Listener> listeners_;
  Loop::TimerId timer_ = 0;  // while there are listeners
  Loop::Clock::time_point due_;
};

}  // namespace fairring
