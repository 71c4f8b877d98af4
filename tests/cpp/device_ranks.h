// Whole ranks with a simulated device each, in one process: real chains, pipelines and rails, over a network that
// delivers in random order. Everything is stepped by the test, in its own thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/device_chain.h"
#include "engine_ranks.h"
#include "simulated_accelerator.h"

namespace fairring::testing {

struct DeviceRank {
  using Settings = SimulatedAccelerator::Settings;

  DeviceRank(const Planner& planner, int rank, std::uint64_t staging, MemoryNetwork& network, SimulatedMachine& machine,
             unsigned seed, Settings settings)
      : rails(std::make_unique<Rails>(loop, rank, troubles())),
        pipeline(planner, rank, {nullptr, rails.get(), Gates::kLines, nullptr, 0}) {
    network.receivers[rank] = rails.get();
    network.loops[rank] = &loop;
    rails->use(memoryChannels(network, rank, planner.topology().world()));
    settings.mayBeCalled = [this] { return !loop.isCurrent(); };
    auto accelerator = std::make_unique<SimulatedAccelerator>(
        machine, static_cast<std::size_t>(planner.topology().localIndexOf(rank)), seed, std::move(settings));
    device = accelerator.get();
    chain = std::make_unique<DeviceChain>(planner, rank, staging, std::move(accelerator), loop);
    exchange = chain->exchange();
    onLoop([this] {
      exchange->attach(pipeline, *rails);
      pipeline.open();
    });
  }
  ~DeviceRank() {
    onLoop([this] { rails.reset(); });
  }

  Troubles troubles() {
    const auto failed = [this](const Error& error) { loop.post([this, error] { fail(error); }); };
    return {failed, [this](int peer) { differs.insert(peer); },
            [failed](int peer) { failed(makeError(ErrorKind::PeerLeft, "rank ", peer, " has left")); }};
  }
  void onLoop(const Loop::Task& task) {
    loop.post(task);
    loop.runOnce(std::chrono::milliseconds(0));
  }
  // As a group's member does.
  void fail(const Error& error) {
    if (!errors.empty()) return;
    errors.push_back(error.text());
    rails->stop();
    exchange->stop();
    pipeline.fail(error);
    exchange->openForEver();
  }

  struct Tensor {
    void* data;
    std::uint64_t elements;
    Reduction reduction;
    double scale = 1.0;
  };
  Accelerator::Event call(const Tensor& tensor, std::uint64_t signature) {
    return call({{tensor.data, tensor.elements, tensor.reduction}}, tensor.scale, signature);
  }
  Accelerator::Event call(const std::vector<Operand>& operands, double scale, std::uint64_t signature) {
    return call({.operands = operands, .scale = scale, .signature = {}, .done = nullptr}, signature);
  }
  Accelerator::Event call(Call call, std::uint64_t signature) {
    DeviceChain::Tensors tensors{call.pattern, Packing::of(call), call.scale, signature, {}};
    for (const Operand& operand : call.operands) {
      tensors.poisoned.emplace_back(static_cast<std::byte*>(operand.data),
                                    operand.elements * bytesOf(operand.reduction.dtype));
    }
    loop.post([this, call = std::move(call)]() mutable {
      if (!errors.empty()) return ended.push_back(makeError(ErrorKind::Aborted, errors.front()));
      call.done = [this](const Error& error) {
        ended.push_back(error);
        if (onEnded) onEnded();
      };
      pipeline.submitOnDevice(std::move(call));
    });
    return chain->enqueue(tensors, device->callers());
  }

  Loop loop{
      [this] { return time_ += std::chrono::milliseconds(1); }};  // so that whatever waits for a time has its turn
  std::unique_ptr<Rails> rails;
  Pipeline pipeline;
  SimulatedAccelerator* device;
  std::unique_ptr<DeviceChain> chain;
  std::shared_ptr<DeviceExchange> exchange;
  std::vector<Error> ended;  // of each call that is over for the loop
  std::function<void()> onEnded;
  std::vector<std::string> errors;
  std::set<int> differs;

 private:
  Loop::Clock::time_point time_;
};

class DeviceCluster {
 public:
  using SettingsOf = std::function<DeviceRank::Settings(int rank)>;

  DeviceCluster(
      const Machines& machines, std::uint64_t staging, std::uint64_t slice, unsigned seed,
      const SettingsOf& settings = [](int) { return DeviceRank::Settings{}; },
      std::vector<CostRow> rows = builtInRows("tcp"))
      : planner(Topology(placesOf(machines), groupingOf(machines)), {staging, slice, std::move(rows)}), random(seed) {
    const Topology& topology = planner.topology();
    const auto anyRank = [&] { return static_cast<int>(random() % static_cast<unsigned>(topology.world())); };
    slow_ = {anyRank(), anyRank()};
    for (int m = 0; m < topology.machines(); ++m) {
      machines_.push_back(std::make_unique<SimulatedMachine>(topology.ranksOf(m).size()));
    }
    for (int r = 0; r < topology.world(); ++r) {
      SimulatedMachine& machine = *machines_[static_cast<std::size_t>(topology.machineOf(r))];
      ranks.push_back(std::make_unique<DeviceRank>(planner, r, staging, network, machine,
                                                   seed * 64 + 1 + static_cast<unsigned>(r), settings(r)));
    }
  }

  std::size_t world() const { return ranks.size(); }

  // Takes one step somewhere: on a device, on a loop, on the network.
  void step() {
    const auto pending = network.pending();
    const std::size_t choice = random() % (2 * ranks.size() + pending.size());
    if (choice < ranks.size()) {
      ranks[choice]->device->step();
    } else if (choice < 2 * ranks.size()) {
      ranks[choice - ranks.size()]->loop.runOnce(std::chrono::milliseconds(0));
    } else {
      const auto pair = pending[choice - 2 * ranks.size()];
      if (pair == slow_ && random() % 64 != 0) return;
      ranks[static_cast<std::size_t>(pair.second)]->onLoop([&] { network.deliver(pair, random()); });
    }
  }
  // Runs until every device has nothing left to do. False if that never happens.
  bool drain() {
    constexpr int kMostSteps = 1'000'000;
    const auto idle = [](const auto& rank) { return rank->device->idle(); };
    for (int i = 0; i < kMostSteps; ++i) {
      if (i % 64 == 0 && std::ranges::all_of(ranks, idle)) {
        for (const auto& rank : ranks) rank->loop.runOnce(std::chrono::milliseconds(0));
        return true;
      }
      step();
    }
    return false;
  }
  // So that objects that wait for ever can be destroyed.
  void giveUp() {
    for (const auto& rank : ranks) rank->device->abort();
    for (const auto& rank : ranks) {
      rank->onLoop([&] { rank->fail(makeError(ErrorKind::Aborted, "given up")); });
    }
    EXPECT_TRUE(drain());
  }

  MemoryNetwork network;
  Planner planner;
  std::mt19937 random;

 private:
  std::pair<int, int> slow_;  // a network that is far behind the others
  std::vector<std::unique_ptr<SimulatedMachine>> machines_;

 public:
  std::vector<std::unique_ptr<DeviceRank>> ranks;  // end before their machines
};

// A program on each rank's device, which has memory for two calls: it computes an input, has it reduced, and uses the
// result when it needs the memory again.
class DeviceProgram {
 public:
  DeviceProgram(DeviceCluster& cluster, std::vector<std::uint64_t> sizes)
      : cluster_(cluster), sizes_(std::move(sizes)) {
    const std::uint64_t largest = *std::ranges::max_element(sizes_);
    results_.resize(cluster.world(), std::vector<std::vector<float>>(sizes_.size()));
    ends_.resize(cluster.world(), std::vector<Accelerator::Event>(sizes_.size()));
    made_.resize(cluster.world(), 0);
    for (std::size_t r = 0; r < cluster.world(); ++r) {
      memory_.push_back({std::vector<float>(largest, 1e9F), std::vector<float>(largest, 1e9F)});
    }
  }

  static float input(std::size_t rank, std::size_t call, std::size_t i) {
    return static_cast<float>((rank * 7 + call * 3 + i * 5) % 64) - 31.0F;
  }
  float expected(std::size_t call, std::size_t i) const {
    float sum = 0;
    for (std::size_t r = 0; r < cluster_.world(); ++r) sum += input(r, call, i);
    return sum;
  }

  bool hasMore(std::size_t rank) const { return made_[rank] < sizes_.size(); }
  // Everything that the rank's program enqueues for its next call.
  void makeNext(std::size_t rank) {
    const std::size_t call = made_[rank]++;
    if (call >= kMemories) use(rank, call - kMemories);
    DeviceRank& self = *cluster_.ranks[rank];
    std::vector<float>& tensor = memory_[rank][call % kMemories];
    const std::uint64_t elements = sizes_[call];
    self.device->compute(self.device->callers(), [&tensor, elements, rank, call] {
      for (std::size_t i = 0; i < elements; ++i) tensor[i] = input(rank, call, i);
    });
    ends_[rank][call] = self.call({.data = tensor.data(), .elements = elements, .reduction = {}}, call);
    if (hasMore(rank)) return;
    for (std::size_t last = call + 1 - std::min(kMemories, call + 1); last <= call; ++last) use(rank, last);
  }
  void makeAll() {
    for (std::size_t r = 0; r < cluster_.world(); ++r) {
      while (hasMore(r)) makeNext(r);
    }
  }
  // Makes calls at random times, while the world goes on.
  void makeAtRandom() {
    std::size_t left = cluster_.world() * sizes_.size();
    while (left > 0) {
      const std::size_t rank = cluster_.random() % cluster_.world();
      if (!hasMore(rank) || cluster_.random() % 64 != 0) {
        cluster_.step();
        continue;
      }
      makeNext(rank);
      --left;
    }
  }

  // The number of wrong elements, of all ranks and calls. After the devices have come to their end.
  std::size_t wrong() const {
    std::size_t wrong = 0;
    for (std::size_t r = 0; r < cluster_.world(); ++r) {
      for (std::size_t c = 0; c < sizes_.size(); ++c) {
        if (results_[r][c].size() != sizes_[c]) wrong += sizes_[c] + 1;
        for (std::size_t i = 0; i < results_[r][c].size(); ++i) wrong += results_[r][c][i] == expected(c, i) ? 0 : 1;
      }
    }
    return wrong;
  }

 private:
  static constexpr std::size_t kMemories = 2;

  void use(std::size_t rank, std::size_t call) {
    SimulatedAccelerator& device = *cluster_.ranks[rank]->device;
    device.wait(device.callers(), ends_[rank][call]);
    device.compute(device.callers(), [this, rank, call] {
      std::vector<float>& tensor = memory_[rank][call % kMemories];
      results_[rank][call].assign(tensor.begin(), tensor.begin() + static_cast<std::ptrdiff_t>(sizes_[call]));
      std::ranges::fill(tensor, 1e9F);
    });
  }

  DeviceCluster& cluster_;
  const std::vector<std::uint64_t> sizes_;
  std::vector<std::size_t> made_;                                  // calls, by rank
  std::vector<std::array<std::vector<float>, kMemories>> memory_;  // by rank
  std::vector<std::vector<Accelerator::Event>> ends_;              // by rank and call
  std::vector<std::vector<std::vector<float>>> results_;           // by rank and call
};

}  // namespace fairring::testing
