// Channels between ranks of one process, for tests: batches wait until the test lets one through, in any order, even
// between two ranks, so schedules can be random and repeatable. A message without a place would stop a real channel:
// here the receiver's refusal fails the test.
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/loop.h"
#include "transport/transport.h"

namespace fairring::testing {

class MemoryNetwork {
 public:
  struct Batch {
    std::vector<Message> messages;
    Channel::Released released;
  };

  std::map<std::pair<int, int>, std::deque<Batch>> queues;  // by sender and receiver
  std::map<int, MessageReceiver*> receivers;
  std::map<int, Loop*> loops;
  std::set<std::pair<int, int>> closed;  // channels, by their rank and its peer
  std::uint64_t bytesSent = 0;
  std::map<int, std::uint64_t> bytesSentBy;
  std::map<int, std::uint64_t> bytesSentTo;

  std::vector<std::pair<int, int>> pending() const {
    std::vector<std::pair<int, int>> pairs;
    for (const auto& [pair, queue] : queues) {
      if (!queue.empty()) pairs.push_back(pair);
    }
    return pairs;
  }

  // Delivers one batch of that pair, which `choice` selects, unless a channel is closed at either end; false if the
  // receiver refused a message.
  bool deliver(std::pair<int, int> pair, std::size_t choice) {
    std::deque<Batch>& queue = queues.at(pair);
    const auto chosen = queue.begin() + static_cast<std::ptrdiff_t>(choice % queue.size());
    Batch batch = std::move(*chosen);
    queue.erase(chosen);
    if (closed.contains(pair) || closed.contains({pair.second, pair.first})) return true;
    MessageReceiver& receiver = *receivers.at(pair.second);
    for (const Message& message : batch.messages) {
      if (message.header.bytes > 0) {
        std::byte* place = receiver.place(pair.first, message.header);
        if (place == nullptr) return false;
        std::memcpy(place, message.data, message.header.bytes);
      }
      receiver.arrived(pair.first, message.header);
    }
    if (!batch.released) return true;
    loops.at(pair.first)->post([this, pair, released = std::move(batch.released)] {
      if (!closed.contains(pair)) released();
    });
    return true;
  }
};

class MemoryChannel final : public Channel {
 public:
  MemoryChannel(MemoryNetwork& network, int rank, int peer) : network_(network), rank_(rank), peer_(peer) {}

  void send(std::span<const Message> messages, Released released) override {
    for (const Message& message : messages) {
      network_.bytesSent += message.header.bytes;
      network_.bytesSentBy[rank_] += message.header.bytes;
      network_.bytesSentTo[peer_] += message.header.bytes;
    }
    network_.queues[{rank_, peer_}].push_back({{messages.begin(), messages.end()}, std::move(released)});
  }
  std::uint64_t bytesSeen() const override { return 0; }
  std::uint64_t sends() const override { return 0; }
  void close() override { network_.closed.emplace(rank_, peer_); }
  bool hasEnded() const override { return network_.closed.contains({rank_, peer_}); }

 private:
  MemoryNetwork& network_;
  const int rank_;
  const int peer_;
};

// To all other ranks.
inline ChannelsByPeer memoryChannels(MemoryNetwork& network, int rank, int world) {
  ChannelsByPeer channels;
  for (int peer = 0; peer < world; ++peer) {
    if (peer != rank) channels[peer] = std::make_shared<MemoryChannel>(network, rank, peer);
  }
  return channels;
}

}  // namespace fairring::testing
