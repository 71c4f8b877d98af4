// A transport between machines: how it is called, what it can do, and how its channels are made. The module lists all
// there are (backend/transports.h). Values; any thread, but for `make`.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/loop.h"
#include "transport/challenge.h"
#include "transport/channel.h"

namespace fairring {

struct Relinking {
  // Requests a new connection for the lane; Channel::add() delivers it. None: broken lanes stay broken.
  std::function<void(int peer, std::uint32_t lane)> relink;
  std::chrono::milliseconds patience{0};  // with a peer to which there is no connection
  // Takes a contact to Channel::connect() at the peer, from a channel whose own connection broke. None: it stays
  // broken.
  std::function<void(int peer, const std::string& contact)> sendContact = nullptr;
};

struct ChannelSettings {
  int rank = 0;
  std::vector<int> peers;
  std::string bindAddress;      // IP, at which these peers reach this rank
  int placeOnMachine = 0;       // of this process (rdma_ports.h)
  std::string rdmaFabric = {};  // of the port to take, as this rank has published it
  // The memory that most large messages are sent from and received into. It outlives the channels.
  std::span<std::byte> staging;
  Secret secret{};
  Relinking relinking;
  std::function<void()> opened;  // a channel is open that was not when it was made
  // A channel ended before it was open. None: it ends as any other does.
  std::function<void(int peer, const Error&)> notOpened = nullptr;
};

using ChannelsByPeer = std::map<int, std::shared_ptr<Channel>>;
// On the loop. Throws Failure(Configuration) if this machine can't use the transport, with the reason and the remedy.
using MakeChannels = std::function<ChannelsByPeer(Loop&, const ChannelSettings&, MessageReceiver&)>;

struct Transport {
  std::string name;  // in the settings, in the table of cost rows (plan/cost_rows.h), and in messages
  MakeChannels make;
  bool takesLanes = false;          // connections that the connector brings; else it finds its peers by contacts
  bool tensorsMayBeImages = false;  // it sends from the tensors' own memory
  bool isRdma = false;              // "auto" takes it inside a site where all ranks can
  bool locksLater = false;          // for RDMA: memory is locked while channels connect, not when they are made
  std::uint32_t lanes = 0;          // to a peer, where it takes them
  // Where a channel to a peer is not open so long after both sides have connected it, or can't be made, TCP takes its
  // place; sooner if the first call has little time. None: that is an error.
  std::optional<std::chrono::milliseconds> tcpAfter = std::nullopt;
};

Transport tcpTransport(std::uint32_t lanes = 1);  // which there always is (tcp_channel.h)

struct Transports {
  Transport rail = tcpTransport();  // between the machines of a site
  Transport site = tcpTransport();  // between sites
};

}  // namespace fairring
