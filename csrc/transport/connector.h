// Makes the connections of one group: to every neighbour those that are wanted, on demand those to any rank, and lanes
// that broke once more. Of two ranks the higher connects and the lower takes what arrives at its endpoint, whenever
// that may be: nobody waits for another's first call. Of the lanes for messages either rank makes one, the higher
// number 0 and the lower number 1, when it has something to send: so it need not ask the other, and two that begin at
// once have two. A connection that is closed during the challenge is tried again for a while: the other side may be
// crowded. So is one to a machine that the network does not reach: its link may have come back a moment ago. On the
// loop only.
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
  SocketAddress address;  // used where this rank is the higher one, as is the next
  std::uint32_t lane = 0;
  std::optional<SocketAddress> source = std::nullopt;  // of this machine; none: as routing chooses
};

class Connector {
 public:
  struct Events {
    std::function<void(AuthenticatedConnection)> linked;  // once, and of a lane again where it was made anew
    std::function<void(int peer, const Error&)> failed;   // of kind Configuration: a certificate, on either side
  };

  Connector(Loop& loop, std::shared_ptr<GroupEndpoint> endpoint, Events events);
  ~Connector();

  // From now on arrivals are taken: control connections and lanes for messages from any rank. Other lanes are kept
  // until want() names them.
  void open();
  void want(const std::vector<ConnectionSpec>& wanted, std::chrono::milliseconds timeout);
  // Like want(), for one connection to a rank that may have ended its group. A process closes connections for groups
  // that it does not know, and also when it is crowded, so a closed one is tried again for a moment only. Does nothing
  // if the connection is there or under way; missing() does not count it.
  void connect(const ConnectionSpec& one, std::chrono::milliseconds timeout);
  // Makes a connection anew that was wanted before, if this rank is the one to connect. It tries until that succeeds,
  // whatever refuses it, and reports no failure.
  void restore(int peer, Purpose purpose, std::uint32_t lane, std::chrono::milliseconds timeout);
  std::set<int> missing() const;  // peers to whom a wanted connection is not there yet

 private:
  using Key = std::tuple<int, Purpose, std::uint32_t>;
  struct Attempt {
    bool again;
    Loop::Clock::time_point deadline;
    Loop::Clock::time_point crowdedUntil;  // at most: what is closed by the other side is tried again until then
    Loop::Clock::time_point unreachableUntil = Loop::Clock::time_point::min();  // likewise, if nothing led to it
    std::chrono::milliseconds pause{0};                                         // before this one
    bool hadNoWay = false;                                                      // out of this machine, this time
    std::unique_ptr<Handshake> handshake = nullptr;
    Loop::TimerId retry = 0;
  };

  bool isMine(const Key& key) const;  // to make
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
