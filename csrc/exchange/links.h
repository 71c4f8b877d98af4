// Makes the connections of one group: to every neighbour one of each wanted purpose. Of two ranks the higher connects
// and the lower takes what arrives at its entrance, whenever that may be: nobody waits for another's first call.
// A connection that is closed during the challenge is tried again for a while: the other side may be crowded.
// On the loop only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "exchange/acceptor.h"

namespace fairring {

struct Wanted {
  int peer;
  Purpose purpose;
  SocketAddress address;  // used where this rank is the higher one
  bool operator<(const Wanted& other) const { return std::pair(peer, purpose) < std::pair(other.peer, other.purpose); }
};

class Links {
 public:
  struct Events {
    std::function<void(Arrival)> linked;
    std::function<void(int peer, const Error&)> failed;
  };

  Links(Loop& loop, std::shared_ptr<Entrance> entrance, Events events);
  ~Links();

  void want(const std::vector<Wanted>& wanted, std::chrono::milliseconds timeout);
  std::set<int> missing() const;  // peers to whom a wanted connection is not there yet

 private:
  using Key = std::pair<int, Purpose>;
  struct Attempt {
    Wanted wanted;
    Loop::Clock::time_point deadline;
    std::unique_ptr<Handshake> handshake;
    Loop::TimerId retry = 0;
  };

  void connect(Attempt& attempt);
  void onFinished(const Key& key, const Error& error);
  void take(Arrival arrival);

  Loop& loop_;
  std::shared_ptr<Entrance> entrance_;
  Events events_;
  std::set<Key> missing_;
  std::map<Key, Attempt> attempts_;
};

}  // namespace fairring
