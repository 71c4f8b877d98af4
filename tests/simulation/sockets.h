// The sockets of simulated processes: the definitions of transport/socket.h that the simulation links instead of the
// system's. Who connects gets one end of a wire (wire.h), and the listener the other end when the way there has been
// crossed. Addresses of TCP lead over the simulated network; local ones stay on the machine, and a connection there is
// made or refused at once, as Linux does it. One thread, and one such object at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/socket.h"
#include "wire.h"

namespace fairring::testing {

class Sockets {
 public:
  explicit Sockets(Surroundings& surroundings);
  ~Sockets();
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  void act(int rank) { acting_ = rank; }  // whose code runs now
  void serve(int rank);                   // after a turn of it
  void died(int rank);                    // its listeners too
  void stopListening(int rank);
  void breakLanes(int rank);  // those that stand or are being made, of its connections to other machines
  void refuse(int rank, simulation::Time until);  // connections from other machines, as a firewall does
  // Somebody from outside the job connects to a rank's listener.
  enum class Intrusion : std::uint8_t {
    Garbage,  // writes something random
    Replay,   // writes what somebody wrote who was let in, and something random behind it
    Half,     // writes the beginning of that, and then nothing
    Crowd,    // many, which write nothing
  };
  void intrude(int rank, Intrusion how);
  // It was told more than the answer to a greeting, or is a lane.
  bool isStrangerInside() const { return isStrangerInside_; }
  bool listensAt(const SocketAddress& address) const { return listeners_.contains(key(address)); }

  // What transport/socket.h has.
  Descriptor listen(SocketAddress address);
  int portOf(const Descriptor& listener) const;
  bool isLocal(const Descriptor& socket) const;
  Descriptor connect(const SocketAddress& address);
  int finishConnect(const Descriptor& socket) const;
  Descriptor accept(const Descriptor& listener);
  void prepareForPayload(const Descriptor& socket);

  static Sockets& current();

 private:
  struct Listener {
    int rank = 0;
    int port = 0;
    Descriptor bell;  // readable while somebody waits
    std::deque<std::pair<Descriptor, std::shared_ptr<Wire>>> waiting;
  };
  struct Socket {  // a rank's, by its number, until that is another's
    std::shared_ptr<Wire> wire;
    std::shared_ptr<int> code;  // with which connecting ended
  };

  static std::string key(const SocketAddress& address);
  void intrude(const std::string& address, int from, const std::vector<std::byte>& bytes, bool closes);
  std::vector<std::byte> randomBytes(std::uint64_t most);
  // What a stranger can have heard of a connection to that rank; at random where there was none.
  std::vector<std::byte> heardOn(int rank);
  void arrive(Listener& listener, const std::shared_ptr<Wire>& wire);
  Descriptor known(Descriptor socket, Socket what);

  Surroundings& surroundings_;
  int acting_ = -1;
  int nextPort_ = 20'000;
  std::map<std::string, std::shared_ptr<Listener>> listeners_;                     // by address
  std::map<std::string, int> ranks_;                                               // that have listened, by address
  std::map<int, std::weak_ptr<Listener>> listening_;                               // by descriptor
  std::map<int, Socket> sockets_;                                                  // by descriptor
  std::vector<std::shared_ptr<Wire>> wires_;                                       // that are not over
  std::map<int, simulation::Time> refusesUntil_;                                   // by rank
  std::map<int, std::vector<std::shared_ptr<std::vector<std::byte>>>> greetings_;  // to each rank, so far
  bool isStrangerInside_ = false;
};

}  // namespace fairring::testing
