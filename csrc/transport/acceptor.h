// The one listener of a process: it accepts connections that prove that they belong to one of the process's groups.
// Several ranks of a group may be threads of the process, each with an endpoint of its own.
// It has a TCP port for other machines, the same on each of the job's interfaces, and an abstract unix socket for ranks
// of this machine, which can also carry descriptors. Every connection first goes through the challenge of challenge.h.
// One that fails it, or does not finish within kChallengeTimeout, is dropped and counted. The first that sent anything
// is reported, and then also their number at the end. A connection that names an unknown group may be an early rank of
// a group whose members change: it is turned away, tries again, and counts only if this process has not made that group
// within kEarly. At most kHalfOpen connections are half-open at once. Others then wait in the system's backlog, and
// connections that have been silent for kPatience make room for them. So a crowd of silent strangers delays a peer but
// can't keep it out.
// The Acceptor is made and destroyed on any thread; the rest runs on the loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/loop_thread.h"
#include "transport/handshake.h"

namespace fairring {

struct AuthenticatedConnection {  // a connection that has passed the challenge
  int peer;                       // rank in the group
  Purpose purpose;
  std::uint32_t lane;  // 0 for a connection that is no lane
  Stream stream;
  Error error;  // why there is no stream: TLS's certificates were refused
};

// The endpoint of one group, where its connections arrive. They wait here until the group's first use.
class GroupEndpoint {
 public:
  GroupEndpoint(GroupId groupId, Secret groupSecret, int thisRank, std::shared_ptr<const Tls> groupTls = nullptr)
      : id(groupId), secret(groupSecret), rank(thisRank), tls(std::move(groupTls)) {}
  const GroupId id;
  const Secret secret;
  const int rank;                        // this rank in the group
  const std::shared_ptr<const Tls> tls;  // for connections that leave the machine; none: they are plain

  // On the loop: passes the waiting connections, and all later ones, to the taker.
  void open(std::function<void(AuthenticatedConnection)> taker);
  void close();                                  // on the loop
  void put(AuthenticatedConnection connection);  // on the loop
  bool hasRefused(int peer) const;               // on the loop: an error of that rank's waits here

 private:
  bool closed_ = false;  // later arrivals are dropped
  std::function<void(AuthenticatedConnection)> taker_;
  std::vector<AuthenticatedConnection> waiting_;
};

struct ListenPorts {  // FAIRRING_PORTS; 0-0: any
  int low = 0;
  int high = 0;
};

class Acceptor {
 public:
  static constexpr std::size_t kHalfOpen = 256;
  static constexpr std::chrono::milliseconds kChallengeTimeout{10'000};
  static constexpr std::chrono::milliseconds kPatience{1'000};
  static constexpr std::chrono::milliseconds kEarly{60'000};

  using Report = std::function<void(const std::string& text)>;  // on the loop; must not block

  // Listens on all addresses ("10.0.0.3", "fe80::1%eth0"), one at least; the first stands in the local socket's name.
  // Throws Failure(Configuration) with what to do if it can't.
  Acceptor(LoopThread& loop, std::vector<std::string> addresses, ListenPorts ports, Report report = nullptr,
           std::chrono::milliseconds early = kEarly);
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;
  ~Acceptor();

  const std::vector<std::string>& addresses() const { return addresses_; }
  int port() const { return port_; }
  // On any thread but one that the loop waits for; in force on return. remove() also drops connections that wait there.
  void add(const std::shared_ptr<GroupEndpoint>& endpoint);
  void remove(const std::shared_ptr<GroupEndpoint>& endpoint);

 private:
  void listenWithin(ListenPorts ports);
  bool tryListen(int port);
  Descriptor listenAt(const std::string& address, int port) const;
  void acceptAll(const Descriptor& listener);
  void watchListeners();
  void pause(std::chrono::milliseconds time);
  void resume();
  void dropSilentHalfOpen();
  void greet(Descriptor socket);
  void finish(std::uint64_t halfOpen, const Error& error);
  void refuse(const Handshake& handshake, const Error& error);
  void awaitGroup(const Greeting& greeting, std::string from);
  void count(bool spoke, const std::string& text);
  std::shared_ptr<GroupEndpoint> endpointFor(const Greeting& greeting) const;  // null: of no rank in this process
  std::shared_ptr<const Tls> tlsOf(const Greeting& greeting) const;
  std::optional<Secret> secretOf(const Greeting& greeting) const;

  LoopThread& loop_;
  const std::vector<std::string> addresses_;
  std::vector<Descriptor> listeners_;  // one per address, then the local one
  int port_ = 0;
  // The members below are the loop's.
  using Seat = std::pair<GroupId, int>;  // group and rank
  std::map<Seat, std::shared_ptr<GroupEndpoint>> endpoints_;
  struct HalfOpen {
    Loop::Clock::time_point since;
    std::unique_ptr<Handshake> handshake;
  };
  std::map<std::uint64_t, HalfOpen> halfOpen_;  // half-open, the oldest first
  std::uint64_t nextHalfOpen_ = 0;
  std::optional<Loop::TimerId> paused_;  // no connection is accepted until then
  std::map<Seat, Loop::TimerId> early_;  // ranks that came early, and the time at which one counts as a stranger
  const std::chrono::milliseconds earlyFor_;
  const Report report_;
  bool reported_ = false;        // the first
  std::uint64_t strangers_ = 0;  // connections dropped so far
};

}  // namespace fairring
