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
  void breakLanes(int rank);  // those that stand, of its connections to other machines
  bool listensAt(const SocketAddress& address) const { return listeners_.contains(key(address)); }

  // What transport/socket.h has.
  Descriptor listen(SocketAddress address);
  int portOf(const Descriptor& listener) const;
  bool isLocal(const Descriptor& socket) const;
  Descriptor connect(const SocketAddress& address);
  int finishConnect(const Descriptor& socket) const;
  Descriptor accept(const Descriptor& listener);
  void prepareForPayload(const Descriptor& socket) { sockets_.at(socket.get()).wire->isLane = true; }

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
  void arrive(Listener& listener, const std::shared_ptr<Wire>& wire);
  Descriptor known(Descriptor socket, Socket what);

  Surroundings& surroundings_;
  int acting_ = -1;
  int nextPort_ = 20'000;
  std::map<std::string, std::shared_ptr<Listener>> listeners_;  // by address
  std::map<std::string, int> ranks_;                            // that have listened, by address
  std::map<int, std::weak_ptr<Listener>> listening_;            // by descriptor
  std::map<int, Socket> sockets_;                               // by descriptor
  std::vector<std::shared_ptr<Wire>> wires_;                    // that are not over
};

}  // namespace fairring::testing
