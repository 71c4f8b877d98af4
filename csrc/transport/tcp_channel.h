// All lanes to one peer, as one channel. It cuts the messages that wait for the peer into chunks and gives each to the
// lane with the earliest estimated finish, by the lanes' measured rates, so a slow lane holds nothing up. If a lane
// breaks, its chunks are sent again over the others, and a new connection is requested. The channel ends when the peer
// has closed it, or when it has had no lane for the allowed time. Owned by TcpChannels. On the loop only. Nothing is
// called from within send().
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>

#include "transport/lane.h"

namespace fairring {

struct Relinking {
  // Requests a new connection for the lane; add() delivers it. None: broken lanes stay broken.
  std::function<void(int peer, std::uint32_t lane)> relink;
  std::chrono::milliseconds patience{0};  // with a peer to which there is no lane
};

class TcpChannel final : public LaneOwner, public std::enable_shared_from_this<TcpChannel> {
 public:
  using Ended = std::function<void(const Error&)>;  // empty error: the peer closed it in good order

  TcpChannel(Loop& loop, int peer, MessageReceiver& receiver, const Relinking& relinking,
             std::shared_ptr<SpareMemory> spare, Ended ended);
  ~TcpChannel() override;

  void add(std::uint32_t index, Stream stream);
  void send(std::span<const Message> messages, Channels::Released released);
  std::uint64_t bytesSeen() const;
  std::uint64_t sends() const;
  Packets packets() const;
  void peerLeaves();  // lanes that break from now on stay broken
  void close();

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

  Loop& loop_;
  const int peer_;
  const Relinking& relinking_;
  Ended ended_;
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
