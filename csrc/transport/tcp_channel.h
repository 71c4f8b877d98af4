// All lanes to one peer, as one channel. It cuts the messages that wait for the peer into chunks and gives each to the
// lane with the earliest estimated finish, by the lanes' measured rates, so a slow lane holds nothing up. If a lane
// breaks, its chunks are sent again over the others, and a new connection is requested. The channel ends when the peer
// has closed it, or when it has had no lane for the allowed time. Nothing is called from within send(). On the loop
// only.
#pragma once

#include <map>
#include <memory>

#include "transport/lane.h"
#include "transport/transport.h"

namespace fairring {

class TcpChannel final : public Channel, public LaneOwner, public std::enable_shared_from_this<TcpChannel> {
 public:
  // spare: shared by this rank's channels.
  TcpChannel(Loop& loop, int peer, MessageReceiver& receiver, Relinking relinking, std::shared_ptr<SpareMemory> spare);
  ~TcpChannel() override;

  void add(std::uint32_t index, Stream stream) override;
  void send(std::span<const Message> messages, Released released) override;
  std::uint64_t bytesSeen() const override;
  std::uint64_t sends() const override;
  Packets packets() const override;
  bool hasEnded() const override { return closed_; }
  void peerLeaves() override;
  void close() override;

  void onAcknowledged(const SendQueue::Chunk& chunk) override { sendQueue_.acknowledged(chunk); }
  void onProgress() override { pump(); }
  void onGone(std::uint32_t index, const Error& error) override;
  void onFault(const Error& error) override;

 private:
  void pump();
  Lane* laneForNext();
  void callReleased();
  void awaitLanes(const Error& error);
  void end(const Error& error);
  void dropAll();
  void countGone(const Lane& lane);

  Loop& loop_;
  const int peer_;
  MessageReceiver& receiver_;
  const Relinking relinking_;
  SendQueue sendQueue_;
  Reassembly reassembly_;
  std::map<std::uint32_t, std::shared_ptr<Lane>> lanes_;
  std::uint64_t seenOfGone_ = 0;   // bytes that came over lanes that are gone
  std::uint64_t sendsOfGone_ = 0;  // sends on them
  bool pumping_ = false;           // pump() will be called
  bool peerLeaves_ = false;
  bool peerClosed_ = false;
  bool closed_ = false;
  Loop::TimerId patience_ = 0;
};

}  // namespace fairring
