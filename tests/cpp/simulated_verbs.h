// A network of simulated RDMA ports within this process (transport/verbs_device.h). It carries out what it is asked for
// step by step, in any order that devices may have: a part of a request, or a completion that comes to its port's
// queue. A read copies its bytes in two halves, with anything in between. Steps are taken by a thread of the network's
// own, as cards work by themselves, or by a test that wants the same order for the same seed. A queue pair may be told
// to break after so many requests, and its peer then has the last of them, or not. Peers may read only by queue pairs,
// and in memory, that allow it. Any thread.
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/error.h"
#include "transport/verbs_channel.h"

namespace fairring {

class SimulatedVerbs {
 public:
  static constexpr std::uint32_t kRetriesExceeded = 12;
  static constexpr std::uint32_t kNoRight = 10;
  static constexpr std::uint32_t kFlushed = 5;

  struct Counts {
    std::uint64_t registrations = 0;
    std::uint64_t readableRegistrations = 0;
    std::uint64_t readablePairs = 0;
    std::uint64_t sentBytes = 0;
    std::uint64_t readBytes = 0;
    std::uint64_t breaks = 0;
  };

  enum class Steps : std::uint8_t { ByThread, ByTest };

  explicit SimulatedVerbs(unsigned seed, Steps steps = Steps::ByThread) : random_(seed) {
    if (steps == Steps::ByThread) thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }

  OpenVerbs opener() {
    return [this](const ChannelSettings& settings, std::uint32_t completions) {
      const std::lock_guard lock(mutex_);
      check(!closed_.contains(settings.rank), ErrorKind::Configuration, "the simulated port can't be opened");
      return std::make_unique<Port>(*this, settings.rank, completions);
    };
  }
  void limitLockable(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    lockable_ = bytes;
  }
  // That rank's port.
  void close(int rank) {
    const std::lock_guard lock(mutex_);
    closed_.insert(rank);
  }
  // All packets of the one rank to the other: its device gives up at once, or waits for ever.
  void lose(int from, int to, bool givesUp) {
    const std::lock_guard lock(mutex_);
    lost_[{from, to}] = givesUp;
  }
  void loseNothing() {
    const std::lock_guard lock(mutex_);
    lost_.clear();
  }
  // All reads break their queue pairs, with this status.
  void failReads(std::uint32_t status = kRetriesExceeded) {
    const std::lock_guard lock(mutex_);
    readsFailBy_ = status;
  }
  // All frames of requests with more bytes than that: their devices wait for ever.
  void loseLargerThan(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    mostBytes_ = bytes;
  }
  // Called once, on that rank's loop, when it next connects a queue pair.
  void whenConnecting(int rank, std::function<void()> act) {
    const std::lock_guard lock(mutex_);
    connecting_[rank] = std::move(act);
  }
  // The queue pair of the request after so many breaks, with this status.
  void breakAfter(std::uint64_t requests, std::uint32_t status = kRetriesExceeded) {
    const std::lock_guard lock(mutex_);
    breakAt_ = requestsDone_ + requests;
    breakStatus_ = status;
  }
  // So many times, each after some number of requests below that one.
  void breakOften(std::size_t times, std::size_t requests) {
    const std::lock_guard lock(mutex_);
    breaksToCome_ = times - 1;
    mostBetweenBreaks_ = requests;
    breakAt_ = requestsDone_ + below(requests);
    breakStatus_ = kRetriesExceeded;
  }
  // All queue pairs of the rank that are connected.
  void breakPairsOf(int rank) {
    const std::lock_guard lock(mutex_);
    for (auto& [number, pair] : pairs_) {
      if (pair.port->rank != rank || pair.peer == 0) continue;
      pair.isBroken = true;
      flush(pair);
    }
    moreToDo_.notify_one();
  }
  // Of the device's driver, from now on.
  void failPolls() {
    const std::lock_guard lock(mutex_);
    pollsFail_ = true;
  }
  // By that rank's device. The queue pair of the event is one of the rank's, in the order of their making.
  void report(int rank, VerbsAsyncEvent event) {
    const std::lock_guard lock(mutex_);
    for (Port* const port : ports_) {
      if (port->rank != rank) continue;
      std::uint32_t place = event.queuePair;
      for (const auto& [number, pair] : pairs_) {
        if (pair.port == port && place-- == 0) event.queuePair = number;
      }
      port->reported.push_back(event);
      const std::uint64_t one = 1;
      EXPECT_EQ(::write(port->async.get(), &one, sizeof one), ssize_t{sizeof one});
    }
  }
  void takeSteps() {
    const std::lock_guard lock(mutex_);
    for (std::size_t steps = below(8); steps > 0 && step(); --steps) continue;
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
  struct Region {
    RegisteredMemory memory;
    PeerAccess access;
  };
  struct Port;
  struct Pair {
    Port* port;
    std::uint32_t number;
    PeerAccess access;
    std::uint32_t peer = 0;
    bool isBroken = false;
    std::deque<Request> receives{};
    std::deque<Request> requests{};
    std::deque<VerbsCompletion> received{};   // that have not come to the port's queue yet, in order
    std::deque<VerbsCompletion> completed{};  // of requests, likewise
  };

  struct PairHandle final : VerbsQueuePair {
    PairHandle(SimulatedVerbs& net, std::uint32_t pairNumber) : network(net), number(pairNumber) {}
    ~PairHandle() override {
      const std::lock_guard lock(network.mutex_);
      std::erase_if(pair().port->queue, [&](const VerbsCompletion& one) { return one.queuePair == number; });
      network.pairs_.erase(number);
    }
    QueuePairName name() const override { return {number, 0}; }
    void connect(const VerbsAddress&, const QueuePairName& name) override {
      std::function<void()> act;
      {
        const std::lock_guard lock(network.mutex_);
        pair().peer = name.number;
        network.moreToDo_.notify_one();
        act = std::exchange(network.connecting_[pair().port->rank], nullptr);
      }
      if (act) act();
    }
    void receive(std::uint32_t index, std::span<std::byte> into, std::uint32_t localKey) override {
      const std::lock_guard lock(network.mutex_);
      network.expectRegistered(localKey, into);
      pair().receives.push_back({VerbsCompletion::Kind::Receive, index, into});
      if (pair().isBroken) network.flush(pair());
      network.moreToDo_.notify_one();
    }
    void send(std::uint32_t index, std::span<const std::byte> from, std::uint32_t localKey) override {
      post({VerbsCompletion::Kind::Send, index, {const_cast<std::byte*>(from.data()), from.size()}}, localKey);
    }
    void read(std::span<std::byte> into, std::uint32_t localKey, std::uint64_t address, std::uint32_t key) override {
      post({VerbsCompletion::Kind::Read, 0, into, address, key}, localKey);
    }
    void post(const Request& request, std::uint32_t localKey) {
      const std::lock_guard lock(network.mutex_);
      network.expectRegistered(localKey, request.memory);
      pair().requests.push_back(request);
      if (pair().isBroken) network.flush(pair());
      network.moreToDo_.notify_one();
    }
    Pair& pair() const { return network.pairs_.at(number); }

    SimulatedVerbs& network;
    const std::uint32_t number;
  };

  struct Port final : VerbsDevice {
    Port(SimulatedVerbs& net, int ofRank, std::uint32_t completions)
        : network(net), rank(ofRank), mostCompletions(completions) {
      network.ports_.insert(this);  // under the network's lock
    }
    ~Port() override {
      const std::lock_guard lock(network.mutex_);
      network.ports_.erase(this);
      for (const std::uint32_t key : keys) network.regions_.erase(key);
    }
    VerbsAddress address() const override { return {std::string(16, 'g'), 1, 5, "simulated"}; }
    std::string name() const override { return "simulated port"; }
    std::string trouble() const override { return {}; }
    RegisteredMemory registerMemory(std::span<std::byte> memory, PeerAccess access) override {
      const std::lock_guard lock(network.mutex_);
      ++network.counts_.registrations;
      if (access == PeerAccess::Read) ++network.counts_.readableRegistrations;
      const std::uint32_t key = ++network.lastKey_;
      keys.insert(key);
      network.regions_[key] = {{memory.data(), memory.size(), key, key}, access};
      return network.regions_[key].memory;
    }
    void release(const RegisteredMemory& memory) override {
      const std::lock_guard lock(network.mutex_);
      EXPECT_EQ(keys.erase(memory.localKey), 1U);
      network.regions_.erase(memory.localKey);
    }
    void expectLockable(std::uint64_t bytes, const std::string&) const override {
      const std::lock_guard lock(network.mutex_);
      check(bytes <= network.lockable_, ErrorKind::Configuration, "a simulated limit of memory");
    }
    std::unique_ptr<VerbsQueuePair> makeQueuePair(QueueDepths, PeerAccess access) override {
      const std::lock_guard lock(network.mutex_);
      if (access == PeerAccess::Read) ++network.counts_.readablePairs;
      const std::uint32_t number = ++network.lastPair_;
      network.pairs_.emplace(number, Pair{this, number, access});
      return std::make_unique<PairHandle>(network, number);
    }
    std::size_t poll(std::span<VerbsCompletion> into) override {
      const std::lock_guard lock(network.mutex_);
      if (network.pollsFail_) throw Failure(makeError(ErrorKind::Connection, name(), " can't be polled"));
      // A part of those that are there.
      const std::size_t count = std::min(into.size(), queue.empty() ? 0 : 1 + network.below(queue.size()));
      std::copy_n(queue.begin(), count, into.begin());
      queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(count));
      return count;
    }
    int descriptor() const override { return event.get(); }
    void arm() override {
      const std::lock_guard lock(network.mutex_);
      isArmed = true;
    }
    void takeEvents() override {
      std::uint64_t count = 0;
      while (::read(event.get(), &count, sizeof count) > 0) continue;
    }
    void push(const VerbsCompletion& completion) {
      queue.push_back(completion);
      EXPECT_LE(queue.size(), mostCompletions) << "the completion queue overruns";
      const std::uint64_t one = 1;
      if (std::exchange(isArmed, false)) EXPECT_EQ(::write(event.get(), &one, sizeof one), ssize_t{sizeof one});
    }
    std::string textOf(std::uint32_t status) const override { return "status " + std::to_string(status); }

    int asyncDescriptor() const override { return async.get(); }
    std::optional<VerbsAsyncEvent> takeAsyncEvent() override {
      const std::lock_guard lock(network.mutex_);
      std::uint64_t count = 0;
      if (reported.empty()) {
        while (::read(async.get(), &count, sizeof count) > 0) continue;
        return std::nullopt;
      }
      VerbsAsyncEvent event = reported.front();
      reported.pop_front();
      return event;
    }

    SimulatedVerbs& network;
    const int rank;
    const std::uint32_t mostCompletions;
    const Descriptor event{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    const Descriptor async{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    bool isArmed = false;
    std::deque<VerbsAsyncEvent> reported;
    std::deque<VerbsCompletion> queue;
    std::set<std::uint32_t> keys;
  };

  std::size_t below(std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_); }

  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      moreToDo_.wait(lock, stop, [&] { return step(); });
      lock.unlock();  // others come in between
      lock.lock();
    }
  }

  // A step of some queue pair's. False: none has anything to do.
  bool step() {
    std::vector<Pair*> busy;
    std::vector<std::pair<Port*, std::deque<VerbsCompletion>*>> late;
    for (auto& [number, pair] : pairs_) {
      if (!pair.requests.empty() && pair.peer != 0 && losesTo(pair) != Loss::Waits) busy.push_back(&pair);
      for (auto* queue : {&pair.received, &pair.completed}) {
        if (!queue->empty()) late.emplace_back(pair.port, queue);
      }
    }
    if (busy.empty() && late.empty()) return false;
    const std::size_t chosen = below(busy.size() + late.size());
    if (chosen < busy.size()) {
      carryOut(*busy[chosen]);
    } else {
      const auto& [port, queue] = late[chosen - busy.size()];
      port->push(queue->front());
      queue->pop_front();
    }
    return true;
  }

  enum class Loss : std::uint8_t { None, GivesUp, Waits };

  Loss losesTo(const Pair& pair) const {
    if (pair.requests.front().memory.size() > mostBytes_) return Loss::Waits;
    const auto peer = pairs_.find(pair.peer);
    if (peer == pairs_.end()) return Loss::None;
    const auto lost = lost_.find({pair.port->rank, peer->second.port->rank});
    if (lost == lost_.end()) return Loss::None;
    return lost->second ? Loss::GivesUp : Loss::Waits;
  }

  // Carries out the oldest request of the queue pair, or a part of it.
  void carryOut(Pair& pair) {
    Request& request = pair.requests.front();
    const auto peer = pairs_.find(pair.peer);
    if (peer == pairs_.end() || peer->second.isBroken || peer->second.peer == 0) return fail(pair, kRetriesExceeded);
    const bool isSend = request.kind == VerbsCompletion::Kind::Send;
    if (losesTo(pair) == Loss::GivesUp) return fail(pair, kRetriesExceeded);
    if (readsFailBy_ != 0 && !isSend) return fail(pair, readsFailBy_);
    if (breakAt_ && requestsDone_ >= *breakAt_) {
      breakAt_.reset();
      if (breaksToCome_ > 0) {
        --breaksToCome_;
        breakAt_ = requestsDone_ + below(mostBetweenBreaks_);
      }
      if (isSend && below(2) == 0) deliver(request, peer->second);  // its acknowledgement gets lost
      return fail(pair, breakStatus_);
    }
    if (isSend ? !deliver(request, peer->second) : !copy(pair, peer->second, request)) return;
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

  void expectRegistered(std::uint32_t key, std::span<const std::byte> memory) {
    const auto region = regions_.find(key);
    EXPECT_TRUE(region != regions_.end() && region->second.memory.contains(memory.data(), memory.size()));
  }

  // False: there is more to do, or it has failed.
  bool copy(Pair& pair, const Pair& peer, Request& request) {
    const auto region = regions_.find(request.key);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a device is given numbers
    const auto* const from = reinterpret_cast<const std::byte*>(request.address);
    const bool mayRead = region != regions_.end() && region->second.access == PeerAccess::Read &&
                         peer.access == PeerAccess::Read && region->second.memory.contains(from, request.memory.size());
    if (!mayRead) {
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
    ++counts_.breaks;
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
  std::condition_variable_any moreToDo_;
  std::mt19937 random_;
  std::map<std::uint32_t, Pair> pairs_;
  std::map<std::uint32_t, Region> regions_;
  std::uint32_t lastPair_ = 0;
  std::uint32_t lastKey_ = 0;
  std::uint64_t requestsDone_ = 0;
  std::optional<std::uint64_t> breakAt_;
  std::uint32_t breakStatus_ = 0;
  std::size_t breaksToCome_ = 0;  // after the one at breakAt_
  std::size_t mostBetweenBreaks_ = 0;
  std::uint32_t readsFailBy_ = 0;
  bool pollsFail_ = false;
  std::uint64_t lockable_ = ~0ULL;
  std::uint64_t mostBytes_ = ~0ULL;
  std::set<int> closed_;
  std::map<int, std::function<void()>> connecting_;  // by rank
  std::set<Port*> ports_;
  std::map<std::pair<int, int>, bool> lost_;  // by ranks, from and to
  Counts counts_;
  std::jthread thread_;  // ends first
};

}  // namespace fairring
