// Whole groups of one process, every rank with its own loop and listener, over real sockets of this machine.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "group/group.h"

namespace fairring::testing {

using std::chrono::milliseconds;

constexpr milliseconds kLong{60'000};

struct Node {  // the objects of a process
  LoopThread loop;
  LoopThread vitals;
  Acceptor acceptor{loop, {"127.0.0.1"}, {}};
  std::shared_ptr<GroupEndpoint> endpoint;
  std::unique_ptr<Group> group;

  Threads threads() { return {loop, vitals}; }
  ~Node() {
    group.reset();
    acceptor.remove(endpoint);
  }
};

class Job {
  std::mutex mutex_;                      // guards tasks_
  std::vector<std::future<void>> tasks_;  // outlive the groups, which may have tasks at their end

 public:
  using MakeAccelerator = decltype(GroupSettings::makeAccelerator);

  explicit Job(const std::vector<std::string>& machines) {
    const Secret secret = randomSecret();
    for (std::size_t r = 0; r < machines.size(); ++r) {
      auto node = std::make_unique<Node>();
      node->endpoint = std::make_shared<GroupEndpoint>(makeGroupId(secret, "job"), secret, static_cast<int>(r));
      node->acceptor.add(node->endpoint);
      facts.push_back(
          {{machines[r], ""}, "host-of-" + machines[r], {"127.0.0.1"}, node->acceptor.port(), "same", "", "", {}});
      nodes.push_back(std::move(node));
    }
  }
  void join(std::size_t rank) {
    GroupSettings settings{.name = "job",
                           .rank = static_cast<int>(rank),
                           .globalRank = static_cast<int>(rank),
                           .tuning = {.totalMemoryBytes = 1 << 20,
                                      .sliceBytes = 256 << 10,
                                      .heartbeatTimeout = heartbeatTimeout,
                                      .connectTimeout = connectTimeout},
                           .transports = transports,
                           .failed = failed,
                           .memoryLocked = memoryLocked,
                           .warn = warn,
                           .makeAccelerator = makeAccelerator ? makeAccelerator(rank) : nullptr,
                           .endsDeviceWithin = endsDeviceWithin,
                           .offLoop = [this](std::function<void()> task) { offLoop(std::move(task)); },
                           .lookForFailure = lookForFailure};
    nodes[rank]->group = std::make_unique<Group>(nodes[rank]->threads(), nodes[rank]->endpoint, settings, facts);
  }
  void joinAll() {
    for (std::size_t r = 0; r < nodes.size(); ++r) join(r);
  }
  std::future<std::string> allReduce(std::size_t rank, std::vector<float>& tensor, milliseconds timeout = kLong,
                                     std::shared_ptr<Arrival> inputs = nullptr) {
    auto done = std::make_shared<std::promise<std::string>>();
    nodes[rank]->group->submit({.operands = {{tensor.data(), tensor.size(), {.dtype = DType::Float32}}},
                                .inputs = std::move(inputs),
                                .timeout = timeout,
                                .signature = {"all_reduce of " + std::to_string(tensor.size())},
                                .done = [done](const Error& error) { done->set_value(error ? error.text() : ""); }});
    return done->get_future();
  }

  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<RankFacts> facts;
  Transports transports = {};
  milliseconds heartbeatTimeout = kLong;
  milliseconds connectTimeout = kLong;
  LookForFailure lookForFailure;
  std::function<void(const Error&)> failed;
  std::function<void()> memoryLocked;
  std::function<void(const std::string&)> warn;
  std::function<MakeAccelerator(std::size_t rank)> makeAccelerator;
  std::chrono::seconds endsDeviceWithin{30};

 private:
  void offLoop(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::async(std::launch::async, std::move(task)));
  }
};

}  // namespace fairring::testing
