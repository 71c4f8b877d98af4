// Channels between ranks of one process, for tests: messages wait until the test lets one through, in whatever order it
// likes, also between two ranks, so schedules can be random and repeatable. A part without a place would stop a real
// channel: here the receiver's refusal fails the test.
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/loop.h"
#include "transport/channels.h"

namespace fairring::testing {

class MemoryNetwork {
 public:
  struct Message {
    std::vector<Part> parts;
    Channels::Released released;
  };

  std::map<std::pair<int, int>, std::deque<Message>> queues;  // by sender and receiver
  std::map<int, MessageReceiver*> receivers;
  std::map<int, Loop*> loops;
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

  // Delivers one message of that pair, `choice` says which; false when the receiver refused a part.
  bool deliver(std::pair<int, int> pair, std::size_t choice) {
    std::deque<Message>& queue = queues.at(pair);
    const auto chosen = queue.begin() + static_cast<std::ptrdiff_t>(choice % queue.size());
    Message message = std::move(*chosen);
    queue.erase(chosen);
    MessageReceiver& receiver = *receivers.at(pair.second);
    for (const Part& part : message.parts) {
      if (part.header.bytes > 0) {
        std::byte* place = receiver.place(pair.first, part.header);
        if (place == nullptr) return false;
        std::memcpy(place, part.data, part.header.bytes);
      }
      receiver.arrived(pair.first, part.header);
    }
    if (message.released) loops.at(pair.first)->post(std::move(message.released));
    return true;
  }
};

class MemoryChannels final : public Channels {
 public:
  MemoryChannels(MemoryNetwork& network, int rank) : network_(network), rank_(rank) {}

  void send(int peer, std::span<const Part> parts, Released released) override {
    for (const Part& part : parts) {
      network_.bytesSent += part.header.bytes;
      network_.bytesSentBy[rank_] += part.header.bytes;
      network_.bytesSentTo[peer] += part.header.bytes;
    }
    network_.queues[{rank_, peer}].push_back({{parts.begin(), parts.end()}, std::move(released)});
  }
  std::uint64_t bytesSeen(int) const override { return 0; }
  std::uint64_t sends(int) const override { return 0; }
  bool drained() const override { return false; }
  void close() override {}

 private:
  MemoryNetwork& network_;
  const int rank_;
};

}  // namespace fairring::testing
