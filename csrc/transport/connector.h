// Makes the connections of one group: the wanted ones to every neighbour, on demand some to any rank, and broken lanes
// anew. Of two ranks the higher connects, and the lower takes connections from its endpoint at any time, so no rank
// waits for another's first call. A lane for messages is made by the rank that has something to send, number 0 by the
// higher and number 1 by the lower: so neither need ask the other, and if both begin at once, there are two. A
// connection that is closed during the challenge is tried again for a while, because the other side may be crowded. So
// is one to a machine that the network does not reach, because its link may have come back a moment ago. On the loop
// only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "transport/acceptor.h"

namespace fairring {

struct ConnectionSpec {
  int peer;
  Purpose purpose;
  SocketAddress address;  // used if this rank is the higher one, as is the next
  std::uint32_t lane = 0;
  std::optional<SocketAddress> source = std::nullopt;  // of this machine; none: as routing chooses
};

class Connector {
 public:
  struct Events {
    std::function<void(AuthenticatedConnection)> linked;  // once; again if it was made anew
    std::function<void(int peer, const Error&)> failed;   // of kind Configuration: a certificate, on either side
  };

  Connector(Loop& loop, std::shared_ptr<GroupEndpoint> endpoint, Events events);
  ~Connector();

  // After this arrivals are taken: control connections and lanes for messages from any rank. Other lanes are kept
  // until want() names them.
  void open();
  void want(const std::vector<ConnectionSpec>& wanted, std::chrono::milliseconds timeout);
  // Like want(), for one connection to a rank that may have ended its group. A process closes connections for groups
  // that it does not know, and also when it is crowded, so a closed one is tried again for a moment only. Does nothing
  // if the connection is there or under way; missing() does not count it.
  void connect(const ConnectionSpec& one, std::chrono::milliseconds timeout);
  // Makes a wanted connection of this rank's once more, which ended before the other side had said anything: that may
  // have been too crowded to wait for our part of the challenge. From there on like connect(), since it may as well
  // have ended its group, which is to be known soon; but missing() counts it.
  void repeat(const ConnectionSpec& one, std::chrono::milliseconds timeout);
  // Makes a connection anew that was wanted before, if this rank is the one to connect. Tries until that succeeds,
  // despite any refusal, and reports no failure.
  void restore(int peer, Purpose purpose, std::uint32_t lane, std::chrono::milliseconds timeout);
  std::set<int> missing() const;  // peers to which a wanted connection is not there yet

 private:
  using Key = std::tuple<int, Purpose, std::uint32_t>;
  struct Attempt {
    bool again;
    Loop::Clock::time_point deadline;
    Loop::Clock::time_point crowdedUntil;  // at most: until then a connection that the other side closed is tried again
    Loop::Clock::time_point unreachableUntil = Loop::Clock::time_point::min();  // likewise, if nothing led to it
    std::chrono::milliseconds pause{0};                                         // before this one
    bool hadNoWay = false;                                                      // out of this machine, this time
    std::unique_ptr<Handshake> handshake = nullptr;
    Loop::TimerId retry = 0;
  };

  bool isMine(const Key& key) const;  // whether this rank makes it
  void beginIfMissing(const ConnectionSpec& one, Attempt attempt);
  void begin(const Key& key, Attempt attempt);
  void tryConnecting(const Key& key);
  bool retry(const Attempt& attempt, const Error& error) const;
  void onFinished(const Key& key, const Error& error);
  bool goesToListener(const Key& key) const;
  void take(AuthenticatedConnection connection);

  Loop& loop_;
  std::shared_ptr<GroupEndpoint> endpoint_;
  Events events_;
  std::map<Key, ConnectionSpec> wanted_;
  std::set<Key> missing_;
  std::set<Key> linked_;
  bool hasWanted_ = false;
  std::map<Key, AuthenticatedConnection> early_;  // lanes that came, or failed, before that
  std::map<Key, Attempt> attempts_;
};

}  // namespace fairring
