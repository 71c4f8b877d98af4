// Channels over TCP: one or several authenticated connections per peer, the lanes, driven by the loop. The messages
// that wait for a peer go to any of its lanes that is free (tcp_channel.h), without copies on either side. On the loop
// only.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "transport/tcp_channel.h"

namespace fairring {

class TcpChannels final : public Channels {
 public:
  TcpChannels(Loop& loop, MessageReceiver& receiver, Relinking relinking = {});
  ~TcpChannels() override;

  // A connection that has passed the challenge. It replaces an earlier one with the same index.
  void add(int peer, std::uint32_t lane, Stream stream);
  // Makes a peer's channel before its first connection is there: messages to the peer wait for it.
  void expect(int peer);
  bool knows(int peer) const { return channels_.contains(peer); }  // there is, or was, a channel to it
  std::vector<int> peers() const;                                  // peers whose channels have not ended
  // Ends the channel to this peer, if there is one, as close() does.
  void drop(int peer);
  // The peer will not come back: lanes that break from now on stay broken.
  void peerLeaves(int peer);

  void send(int peer, std::span<const Message> messages, Released released) override;
  std::uint64_t bytesSeen(int peer) const override;
  std::uint64_t sends(int peer) const override;
  Packets packets(int peer) const override;
  void close() override;

 private:
  std::shared_ptr<TcpChannel> take(int peer);  // its channel, which ends
  void onEnded(int peer, const Error& error);

  Loop& loop_;
  MessageReceiver& receiver_;
  const Relinking relinking_;
  const std::shared_ptr<SpareMemory> spare_ = std::make_shared<SpareMemory>();
  std::map<int, std::shared_ptr<TcpChannel>> channels_;  // null: the channel has ended
  std::map<int, std::uint64_t> sendsOfEnded_;            // by peer
};

}  // namespace fairring
