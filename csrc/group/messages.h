// This rank's point-to-point messages in a group: what matches them (point_to_point.h), their channels, and the
// connections, which are made on demand. Whoever first has something to send to a rank makes a lane to it, and of the
// two the higher makes a control connection besides, where there is none: by that each learns of the other's end, as
// neighbours do. Who only waits for a rank's message makes no lane; where it is not the one to make the control
// connection it probes the other's listener. On the loop only.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "exchange/point_to_point.h"
#include "group/neighbours.h"
#include "transport/connector.h"
#include "transport/control.h"
#include "transport/listener_probe.h"
#include "transport/tcp_channel.h"

namespace fairring {

class Messages {
 public:
  struct Ways {
    Connector& connector;
    Control& control;
    ListenerProbe& probe;
    std::chrono::milliseconds connectTimeout;
    std::chrono::milliseconds lanePatience;  // with lanes that broke
  };
  struct Events {
    std::function<void(int peer, const Error&)> channelEnded;
    std::function<void(const Error&)> failed;
    std::function<void()> progress;
  };

  Messages(Loop& loop, const Neighbours& neighbours, int rank, Ways ways, Events events);

  void send(Sending sending) { matching_.send(std::move(sending)); }
  void receive(Receiving receiving) { matching_.receive(std::move(receiving)); }

  void add(AuthenticatedConnection lane);  // throws Failure
  void peerLeaves(int peer);
  // These are PointToPoint's.
  void leave(int peer, const Error& error) { matching_.leave(peer, error); }
  void lose(int peer, const Error& error) { matching_.lose(peer, error); }
  void fail(const Error& error) { matching_.fail(error); }
  bool waitsFor(int peer) const { return matching_.waitsFor(peer); }
  bool needs(int peer, std::uint64_t messagesSent) const { return matching_.needs(peer, messagesSent); }
  std::uint64_t sentTo(int peer) const { return matching_.sentTo(peer); }
  std::vector<MessageWait> waits() const { return matching_.waits(); }
  std::vector<int> unreached() const;  // peers with a channel for messages and no control connection yet
  std::uint64_t bytesSeen(int peer) const;

 private:
  void reach(int peer, PointToPoint::Reach what);
  void reachControl(int peer);
  Channel& channelTo(int peer);  // made where there is none yet
  void relink(int peer, std::uint32_t lane);

  Loop& loop_;
  const Neighbours& neighbours_;
  const int rank_;
  const Ways ways_;
  const std::shared_ptr<SpareMemory> spare_ = std::make_shared<SpareMemory>();
  PointToPoint matching_;
};

}  // namespace fairring
