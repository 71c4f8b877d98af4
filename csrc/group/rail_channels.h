// The channels of this rank's rails, whichever the settings name: of TCP, on connections that the connector brings, or
// of TensorPipe, which finds its peers by contacts that travel over the control connections. Between sites they may be
// others than between the machines of one: each peer is reached by one kind.
// On the loop only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "base/loop.h"
#include "exchange/rails.h"
#include "group/neighbours.h"
#include "group/settings.h"
#include "transport/contact_channels.h"
#include "transport/tcp_channels.h"

namespace fairring {

class RailChannels final : public Channels {
 public:
  // Gives itself to the rails. `opened` is called when TensorPipe's have reached all peers; others are not waited for.
  // Throws Failure(Configuration) where this machine can't use the transport.
  // `relinking` makes lanes of TCP's anew that broke.
  RailChannels(Loop& loop, const GroupSettings& settings, const Neighbours& neighbours, const Secret& secret,
               Rails& rails, Relinking relinking, std::function<void()> opened);

  bool isOpen() const { return unopened_ == 0; }

  void add(AuthenticatedConnection lane);           // TCP's; throws Failure(Connection)
  void peerLeaves(int peer);                        // and will not come back
  std::optional<std::string> contactFor(int peer);  // TensorPipe's, for a peer that has to connect
  void connect(int peer, const std::string& contact);

  void send(int peer, std::span<const Message> messages, Released released) override;
  std::uint64_t bytesSeen(int peer) const override { return channelsTo(peer).bytesSeen(peer); }
  Packets packets(int peer) const override { return channelsTo(peer).packets(peer); }
  std::uint64_t sends(int peer) const override { return channelsTo(peer).sends(peer); }
  void close() override;

 private:
  void makeContacts(Loop& loop, const GroupSettings& settings, const Neighbours& neighbours, const Secret& secret,
                    MessageReceiver& receiver);
  Channels& channelsTo(int peer) const;

  const int rank_;
  const std::chrono::milliseconds laneSilence_;
  const std::function<void()> opened_;
  const std::unique_ptr<TcpChannels> tcp_;
  std::vector<std::unique_ptr<ContactChannels>> contacts_;  // one for each of TensorPipe's transports
  std::map<int, ContactChannels*> contactOf_;               // by peer; others are TCP's
  std::size_t unopened_ = 0;
};

}  // namespace fairring
