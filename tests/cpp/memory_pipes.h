// Pipes between ranks of one process, for tests: messages wait in queues until the test lets one through. Between two
// ranks they keep their order; which pair goes next is the test's choice, so schedules can be random and repeatable.
// A part without a place would stop the queue, as in a real pipe: the receiver's refusal fails the test instead.
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/loop.h"
#include "exchange/pipes.h"

namespace fairring::testing {

class MemoryNetwork {
 public:
  struct Message {
    std::vector<Part> parts;
    Pipes::Released released;
  };

  std::map<std::pair<int, int>, std::deque<Message>> queues;  // by sender and receiver
  std::map<int, PipeReceiver*> receivers;
  std::map<int, Loop*> loops;
  std::uint64_t bytesSent = 0;
  std::map<int, std::uint64_t> bytesSentBy;

  std::vector<std::pair<int, int>> pending() const {
    std::vector<std::pair<int, int>> pairs;
    for (const auto& [pair, queue] : queues) {
      if (!queue.empty()) pairs.push_back(pair);
    }
    return pairs;
  }

  // Delivers the oldest message of that pair; false when the receiver refused a part.
  bool deliver(std::pair<int, int> pair) {
    Message message = std::move(queues.at(pair).front());
    queues.at(pair).pop_front();
    PipeReceiver& receiver = *receivers.at(pair.second);
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

class MemoryPipes final : public Pipes {
 public:
  MemoryPipes(MemoryNetwork& network, int rank) : network_(network), rank_(rank) {}

  void send(int peer, std::span<const Part> parts, Released released) override {
    for (const Part& part : parts) {
      network_.bytesSent += part.header.bytes;
      network_.bytesSentBy[rank_] += part.header.bytes;
    }
    network_.queues[{rank_, peer}].push_back({{parts.begin(), parts.end()}, std::move(released)});
  }
  std::uint64_t bytesSeen(int) const override { return 0; }
  bool drained() const override { return false; }
  void close() override {}

 private:
  MemoryNetwork& network_;
  const int rank_;
};

}  // namespace fairring::testing
