// A network of simulated RDMA ports within this process (transport/verbs_device.h). Whenever a port is polled, the
// network does a random part of what has been asked for, and hands out a random part of the completions that there are:
// late, and in any order that devices may have. A read copies its bytes in two halves, with anything in between. A
// queue pair may be told to break after so many requests. Any thread.
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "transport/verbs_channel.h"

namespace fairring {

class SimulatedVerbs {
 public:
  static constexpr std::uint32_t kRetriesExceeded = 12;
  static constexpr std::uint32_t kNoRight = 10;
  static constexpr std::uint32_t kFlushed = 5;

  struct Counts {
    std::uint64_t registrations = 0;
    std::uint64_t sentBytes = 0;
    std::uint64_t readBytes = 0;
  };

  explicit SimulatedVerbs(unsigned seed = 1) : random_(seed) {}

  OpenVerbs opener() {
    return [this](const ChannelSettings&, std::uint32_t completions) {
      return std::make_unique<Port>(*this, completions);
    };
  }
  // The queue pair of the request after so many breaks, with this status.
  void breakAfter(std::uint64_t requests, std::uint32_t status = kRetriesExceeded) {
    const std::lock_guard lock(mutex_);
    breakAt_ = requestsDone_ + requests;
    breakStatus_ = status;
  }
  Counts counts() {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  struct Request {
    VerbsCompletion::Kind kind;
    std::uint32_t index;
    std::span<std::byte> memory;
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    bool isHalfDone = false;
  };
  struct Port;
  struct Pair {
    Port* port;
    std::uint32_t number;
    std::uint32_t peer = 0;
    bool isBroken = false;
    std::deque<Request> receives{};
    std::deque<Request> requests{};
    std::deque<VerbsCompletion> received{};   // not handed out yet, in order
    std::deque<VerbsCompletion> completed{};  // of requests, likewise
  };

  struct PairHandle final : VerbsQueuePair {
    PairHandle(SimulatedVerbs& net, std::uint32_t pairNumber) : network(net), number(pairNumber) {}
    ~PairHandle() override {
      const std::lock_guard lock(network.mutex_);
      network.pairs_.erase(number);
    }
    QueuePairName name() const override { return {number, 0}; }
    void connect(const VerbsAddress&, const QueuePairName& name) override {
      const std::lock_guard lock(network.mutex_);
      pair().peer = name.number;
    }
    void receive(std::uint32_t index, std::span<std::byte> into, std::uint32_t) override {
      const std::lock_guard lock(network.mutex_);
      pair().receives.push_back({VerbsCompletion::Kind::Receive, index, into});
      if (pair().isBroken) network.flush(pair());
    }
    void send(std::uint32_t index, std::span<const std::byte> from, std::uint32_t) override {
      post({VerbsCompletion::Kind::Send, index, {const_cast<std::byte*>(from.data()), from.size()}});
    }
    void read(std::span<std::byte> into, std::uint32_t, std::uint64_t address, std::uint32_t key) override {
      post({VerbsCompletion::Kind::Read, 0, into, address, key});
    }
    void post(const Request& request) {
      const std::lock_guard lock(network.mutex_);
      pair().requests.push_back(request);
      if (pair().isBroken) network.flush(pair());
    }
    Pair& pair() const { return network.pairs_.at(number); }

    SimulatedVerbs& network;
    const std::uint32_t number;
  };

  struct Port final : VerbsDevice {
    Port(SimulatedVerbs& net, std::uint32_t completions) : network(net), mostCompletions(completions) {}
    ~Port() override {
      const std::lock_guard lock(network.mutex_);
      for (const std::uint32_t key : keys) network.readable_.erase(key);
    }
    VerbsAddress address() const override { return {std::string(16, 'g'), 1, 5, "simulated"}; }
    std::string name() const override { return "simulated port"; }
    std::string trouble() const override { return {}; }
    RegisteredMemory registerMemory(std::span<std::byte> memory) override {
      const std::lock_guard lock(network.mutex_);
      ++network.counts_.registrations;
      const std::uint32_t key = ++network.lastKey_;
      keys.insert(key);
      return network.readable_[key] = {memory.data(), memory.size(), key, key};
    }
    std::unique_ptr<VerbsQueuePair> makeQueuePair(QueueDepths) override {
      const std::lock_guard lock(network.mutex_);
      const std::uint32_t number = ++network.lastPair_;
      network.pairs_.emplace(number, Pair{this, number});
      return std::make_unique<PairHandle>(network, number);
    }
    std::size_t poll(std::span<VerbsCompletion> into) override {
      const std::lock_guard lock(network.mutex_);
      return network.poll(*this, into);
    }
    int descriptor() const override { return event.get(); }
    void arm() override {}
    void takeEvents() override {}
    std::string textOf(std::uint32_t status) const override { return "status " + std::to_string(status); }

    SimulatedVerbs& network;
    const std::uint32_t mostCompletions;
    const Descriptor event{::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC)};  // always readable
    std::set<std::uint32_t> keys;
  };

  std::size_t below(std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_); }

  std::size_t poll(const Port& port, std::span<VerbsCompletion> into) {
    for (std::size_t steps = below(8); steps > 0; --steps) step();
    std::size_t count = 0;
    for (std::size_t tries = below(into.size() + 1); tries > 0; --tries) {
      std::vector<std::deque<VerbsCompletion>*> queues;
      std::size_t waiting = 0;
      for (auto& [number, pair] : pairs_) {
        if (pair.port != &port) continue;
        for (auto* queue : {&pair.received, &pair.completed}) {
          waiting += queue->size();
          if (!queue->empty()) queues.push_back(queue);
        }
      }
      EXPECT_LE(waiting, port.mostCompletions) << "the completion queue overruns";
      if (queues.empty()) break;
      auto& queue = *queues[below(queues.size())];
      into[count++] = queue.front();
      queue.pop_front();
    }
    return count;
  }

  // Carries out the oldest request of some queue pair, or a part of it.
  void step() {
    std::vector<Pair*> busy;
    for (auto& [number, pair] : pairs_) {
      if (!pair.requests.empty() && pair.peer != 0) busy.push_back(&pair);
    }
    if (busy.empty()) return;
    Pair& pair = *busy[below(busy.size())];
    Request& request = pair.requests.front();
    const auto peer = pairs_.find(pair.peer);
    if (peer == pairs_.end() || peer->second.isBroken || peer->second.peer == 0) return fail(pair, kRetriesExceeded);
    if (breakAt_ && requestsDone_ >= *breakAt_) {
      breakAt_.reset();
      return fail(pair, breakStatus_);
    }
    if (request.kind == VerbsCompletion::Kind::Send ? !deliver(request, peer->second) : !copy(pair, request)) return;
    ++requestsDone_;
    pair.completed.push_back({pair.number, request.kind, request.index});
    pair.requests.pop_front();
  }

  bool deliver(const Request& request, Pair& to) {
    EXPECT_FALSE(to.receives.empty()) << "sent without credit";
    if (to.receives.empty()) return false;
    const Request receive = to.receives.front();
    to.receives.pop_front();
    EXPECT_LE(request.memory.size(), receive.memory.size());
    std::memcpy(receive.memory.data(), request.memory.data(), request.memory.size());
    counts_.sentBytes += request.memory.size();
    to.received.push_back(
        {to.number, VerbsCompletion::Kind::Receive, receive.index, static_cast<std::uint32_t>(request.memory.size())});
    return true;
  }

  // False: there is more to do, or it has failed.
  bool copy(Pair& pair, Request& request) {
    const auto memory = readable_.find(request.key);
    const auto* const from = reinterpret_cast<const std::byte*>(request.address);
    if (memory == readable_.end() || !memory->second.contains(from, request.memory.size())) {
      fail(pair, kNoRight);
      return false;
    }
    const std::size_t half = request.memory.size() / 2;
    const std::size_t begin = request.isHalfDone ? half : 0;
    const std::size_t end = request.isHalfDone ? request.memory.size() : half;
    std::memcpy(request.memory.data() + begin, from + begin, end - begin);
    counts_.readBytes += end - begin;
    return std::exchange(request.isHalfDone, true);
  }

  void fail(Pair& pair, std::uint32_t status) {
    pair.isBroken = true;
    pair.completed.push_back({pair.number, pair.requests.front().kind, pair.requests.front().index, 0, status, 0});
    pair.requests.pop_front();
    flush(pair);
  }
  void flush(Pair& pair) {
    for (const Request& request : std::exchange(pair.requests, {}))
      pair.completed.push_back({pair.number, request.kind, request.index, 0, kFlushed, 0});
    for (const Request& receive : std::exchange(pair.receives, {}))
      pair.received.push_back({pair.number, receive.kind, receive.index, 0, kFlushed, 0});
  }

  std::mutex mutex_;
  std::mt19937 random_;
  std::map<std::uint32_t, Pair> pairs_;
  std::map<std::uint32_t, RegisteredMemory> readable_;
  std::uint32_t lastPair_ = 0;
  std::uint32_t lastKey_ = 0;
  std::uint64_t requestsDone_ = 0;
  std::optional<std::uint64_t> breakAt_;
  std::uint32_t breakStatus_ = 0;
  Counts counts_;
};

}  // namespace fairring
