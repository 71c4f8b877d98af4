// Of two ranks the higher connects, at its first call, whenever that is (links.h). Until then nothing that breaks would
// tell the lower one that the higher one's process has ended; so it looks now and then whether the other's door, the
// listener of its process (acceptor.h), is still there. A look is a connection that is closed again without a word.
// Only two refusals in a row count, for a firewall that is being changed may refuse for a moment: who does not answer
// may be slow, or out of reach for a while, and the call's timer sees to it. On the loop only.
#pragma once

#include <chrono>
#include <functional>
#include <map>

#include "base/descriptor.h"
#include "base/loop.h"
#include "transport/socket.h"

namespace fairring {

class DoorWatch {
 public:
  // Once for a peer; never from within watch() or forget().
  using Shut = std::function<void(int peer)>;

  DoorWatch(Loop& loop, std::chrono::milliseconds every, Shut shut);
  DoorWatch(const DoorWatch&) = delete;
  DoorWatch& operator=(const DoorWatch&) = delete;
  ~DoorWatch();

  void watch(int peer, const SocketAddress& door);  // of TCP
  void forget(int peer);                            // it has come; nothing where it is not watched

 private:
  struct Door {
    SocketAddress address;
    Descriptor look;       // under way, or none
    bool refused = false;  // the last one
  };

  void lookAtAll();
  void begin(int peer, Door& door);
  void onAnswer(int peer);
  void endLook(Door& door);
  void lookLater();

  Loop& loop_;
  const std::chrono::milliseconds every_;
  const Shut shut_;
  std::map<int, Door> doors_;
  Loop::TimerId timer_ = 0;  // while there are doors
};

}  // namespace fairring
