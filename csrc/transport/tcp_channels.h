// Channels over TCP: one or several authenticated connections, the lanes, per peer, driven by the loop. What waits for
// a peer goes to whichever of its lanes is free (tcp_channel.h), from where it lies and straight to its place. On the
// loop only.
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

  // A connection that has passed the challenge. One that was there under the same index is replaced.
  void add(int peer, std::uint32_t lane, Stream stream);
  // Makes a peer's channel before its first connection is there: what is sent to it waits for that.
  void expect(int peer);
  bool knows(int peer) const { return channels_.contains(peer); }  // has, or had, a channel to it
  std::vector<int> peers() const;                                  // whose channels have not ended
  // Ends the channel to this peer, if there is one, as close() does.
  void drop(int peer);
  // The peer will not come back: what breaks from now on stays broken.
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
