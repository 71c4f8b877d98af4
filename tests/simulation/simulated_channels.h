// Channels over simulated links. Messages arrive whole; those given at different times arrive in any order, where the
// simulation is told to shuffle. As TCP's channels do, small ones are copied as they are sent, and of larger ones the
// memory comes back when the receiver has said that they are there.
//
// The bytes of messages that are moved are read from the sender's memory as late and written to the receiver's as early
// as the contract of channels allows (garbage first), so that memory which is not free spoils a result. One thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/loop.h"
#include "simulation/core.h"
#include "simulation/network.h"
#include "transport/transport.h"

namespace fairring::simulation {

class SimulatedChannels;

struct Postbox {  // of a rank
  Loop* loop = nullptr;
  Core* core = nullptr;
  MessageReceiver* receiver = nullptr;
  SimulatedChannels* channels = nullptr;
  std::function<void()> notify;  // there is something for its loop
};

struct Post {  // what all ranks' channels share
  EventQueue& events;
  Network& network;
  std::vector<Postbox> boxes;   // by rank
  bool movesBytes;              // else nobody asks for messages' places beforehand
  std::uint64_t copiedBytes;    // of a message that is copied, at most
  double latencySeconds;        // until a sender has its acknowledgement
  std::function<Time()> delay;  // of a message that is whole; none: nothing
  // Set by an observer, which sees each batch as it is given to the channels.
  std::function<void(int from, int to, std::span<const Message>)> onSend;
  std::uint64_t bytes = 0;
};

class SimulatedChannels {  // of a rank
 public:
  SimulatedChannels(Post& post, int rank) : post_(post), rank_(rank) {}

  ChannelsByPeer to(const std::set<int>& peers);
  void send(int peer, std::span<const Message> messages, Channel::Released released);
  std::uint64_t sends() const { return sends_; }
  void close();

  bool isClosed() const { return closed_; }
  std::uint64_t messages() const { return messages_; }  // that were sent

 private:
  struct Batch;
  struct Transit;

  void put(int peer, const Message& message, std::shared_ptr<Batch> batch);
  static void begun(Post& post, const std::shared_ptr<Transit>& transit);
  static void whole(Post& post, const std::shared_ptr<Transit>& transit);
  static void receive(Post& post, Transit& transit);
  static void release(Post& post, const std::shared_ptr<Batch>& batch, Time when);

  Post& post_;
  const int rank_;
  bool closed_ = false;
  std::uint64_t sends_ = 0;
  std::uint64_t messages_ = 0;
};

}  // namespace fairring::simulation
