// How a rank comes to the channels of its rails. It makes them and brings their contacts across the control
// connections. If "auto" has chosen RDMA, it may not come about with some peer: the port can't be opened, or packets
// get lost between two fabrics that are named alike. Then the two take TCP. The lower of them decides, before either
// has sent a message, so no message goes astray: its channel is open first (verbs_channel.h), or it says that both take
// TCP. The higher can only say that it has no channel. Member is the only user. On the loop only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "exchange/rails.h"
#include "group/neighbours.h"
#include "transport/connector.h"
#include "transport/control.h"
#include "transport/transport.h"

namespace fairring {

class ChannelOpening {
 public:
  struct Parts {
    Loop& loop;
    Rails& rails;
    const Neighbours& neighbours;
    Connector& connector;
    Control& control;
  };
  struct Settings {
    Transports transports;
    std::chrono::milliseconds connectTimeout;
    std::chrono::milliseconds callTimeout;  // of the call that needs the channels; 0: none, or it is not known
    ChannelSettings channels;               // what those to all peers have in common
    // Tells the user in words of the first peer with which TCP was taken. None: nobody is told.
    std::function<void(const std::string&)> tookTcp;
  };

  // Makes the channels. Throws Failure where one can't be made and TCP is not to take its place.
  ChannelOpening(Parts parts, Settings settings);
  ChannelOpening(const ChannelOpening&) = delete;
  ChannelOpening& operator=(const ChannelOpening&) = delete;
  ~ChannelOpening();

  bool isComplete() const;   // all are open
  void introduce(int peer);  // whose control connection is there, and who may be told of lanes
  // These throw Failure where what the peer says can't be.
  void onContact(int peer, const std::string& contact);
  void onNoChannel(int peer, const std::string& why);
  void onTakeTcp(int peer, const std::string& why);

 private:
  enum class Way : std::uint8_t { AsChosen, None, Tcp };  // none: the lower rank is to say what takes its place
  struct State {
    Way way = Way::AsChosen;
    std::string why;                       // not as chosen
    std::chrono::milliseconds allowed{0};  // from the peer's answer until it is open
    Loop::TimerId patience = 0;
  };

  void make(const Transport& transport, const std::string& address, const std::vector<int>& peers);
  const Transport& transportTo(int peer) const;
  bool decidesWith(int peer) const { return settings_.channels.rank < peer; }
  std::string whoIsHere() const { return parts_.neighbours.who(settings_.channels.rank); }
  Channel* channelTo(int peer) const { return parts_.rails.channelTo(peer); }
  void bePatient(int peer, int pauses);
  void onNotOpened(int peer, const Error& error);
  void takeTcp(int peer, const std::string& why);
  void wantLanes(int peer) const;

  const Parts parts_;
  const Settings settings_;
  std::map<int, State> states_;  // of peers with which TCP may take its place
  std::set<int> introduced_;
  bool hasTold_ = false;
};

}  // namespace fairring
