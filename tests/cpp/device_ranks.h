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

// A program on each rank's device, which has memory for two calls: it computes inputs, makes a call, and uses the
// result when it needs the memory again.
class DeviceProgram {
 public:
  struct Made {  // by all ranks: an all-reduce, a reduce-scatter or an all-gather
    Pattern pattern = Pattern::AllReduce;
    std::vector<std::uint64_t> elements;  // of each tensor, or of each tensor's blocks
    bool inPlace = false;                 // of an all-gather: the input is this rank's block of the output
  };

  DeviceProgram(DeviceCluster& cluster, std::vector<Made> calls) : cluster_(cluster), calls_(std::move(calls)) {
    std::uint64_t most = 0;
    for (const Made& call : calls_) most = std::max(most, floatsOf(call));
    results_.resize(cluster.world(), std::vector<std::vector<float>>(calls_.size()));
    ends_.resize(cluster.world(), std::vector<Accelerator::Event>(calls_.size()));
    made_.resize(cluster.world(), 0);
    memory_.resize(cluster.world());
    for (auto& memories : memory_) memories.fill(std::vector<float>(most, kUntouched));
  }
  // All-reduces of one tensor each.
  DeviceProgram(DeviceCluster& cluster, const std::vector<std::uint64_t>& sizes)
      : DeviceProgram(cluster, allReducesOf(sizes)) {}

  bool hasMore(std::size_t rank) const { return made_[rank] < calls_.size(); }
  // Everything that the rank's program enqueues for its next call.
  void makeNext(std::size_t rank) {
    const std::size_t call = made_[rank]++;
    if (call >= kMemories) use(rank, call - kMemories);
    DeviceRank& self = *cluster_.ranks[rank];
    self.device->compute(self.device->callers(), [this, rank, call] { fillInputs(rank, call); });
    ends_[rank][call] = self.call(engineCall(rank, call), call);
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
    for (std::size_t left = cluster_.world() * calls_.size(); left > 0;) {
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
      for (std::size_t c = 0; c < calls_.size(); ++c) {
        const std::vector<float> expected = resultOf(r, c);
        if (results_[r][c].size() != expected.size()) wrong += 1 + expected.size();
        for (std::size_t i = 0; i < std::min(expected.size(), results_[r][c].size()); ++i)
          wrong += results_[r][c][i] == expected[i] ? 0 : 1;
      }
    }
    return wrong;
  }

 private:
  static constexpr std::size_t kMemories = 2;
  static constexpr float kUntouched = 1e9F;

  struct Places {  // in a rank's memory
    std::uint64_t whole;
    std::uint64_t part;
    std::uint64_t elements;
  };

  static std::vector<Made> allReducesOf(const std::vector<std::uint64_t>& sizes) {
    std::vector<Made> calls;
    for (const std::uint64_t elements : sizes) calls.push_back({.elements = {elements}});
    return calls;
  }
  static float valueOf(std::size_t rank, std::size_t call, std::size_t tensor, std::size_t block, std::uint64_t i) {
    return static_cast<float>((rank * 31 + call * 17 + tensor * 7 + block * 3 + i * 5) % 64) - 31.0F;
  }

  bool gathers(std::size_t call) const { return calls_[call].pattern == Pattern::AllGather; }
  // Of the whole of a tensor. An all-reduce's is one.
  std::size_t blocksOf(const Made& call) const { return call.pattern == Pattern::AllReduce ? 1 : cluster_.world(); }
  // Each tensor has the whole, of all blocks, followed by a part of the size of one block.
  std::uint64_t floatsOf(const Made& call) const {
    std::uint64_t floats = 0;
    for (const std::uint64_t elements : call.elements) floats += (blocksOf(call) + 1) * elements;
    return floats;
  }
  std::vector<Places> placesIn(std::size_t rank, std::size_t call) const {
    std::vector<Places> places;
    std::uint64_t at = 0;
    const std::size_t blocks = blocksOf(calls_[call]);
    for (const std::uint64_t elements : calls_[call].elements) {
      const std::uint64_t part = calls_[call].inPlace ? at + rank * elements : at + blocks * elements;
      places.push_back({at, part, elements});
      at += (blocks + 1) * elements;
    }
    return places;
  }
  std::vector<float>& memoryOf(std::size_t rank, std::size_t call) { return memory_[rank][call % kMemories]; }

  void fillInputs(std::size_t rank, std::size_t call) {
    std::vector<float>& memory = memoryOf(rank, call);
    const auto places = placesIn(rank, call);
    for (std::size_t t = 0; t < places.size(); ++t) {
      const auto& [whole, part, elements] = places[t];
      for (std::uint64_t i = 0; i < elements; ++i) {
        if (gathers(call)) memory[part + i] = valueOf(rank, call, t, rank, i);
        for (std::size_t block = 0; block < blocksOf(calls_[call]) && !gathers(call); ++block)
          memory[whole + block * elements + i] = valueOf(rank, call, t, block, i);
      }
    }
  }

  Call engineCall(std::size_t rank, std::size_t call) {
    float* const memory = memoryOf(rank, call).data();
    Call made{.pattern = calls_[call].pattern, .signature = {}, .done = nullptr};
    const bool isWhole = made.pattern == Pattern::AllReduce;
    if (!isWhole) made.blocks.resize(cluster_.world());
    for (const auto& [whole, part, elements] : placesIn(rank, call)) {
      if (isWhole) made.operands.push_back({memory + whole, elements, {}});
      for (std::size_t block = 0; block < made.blocks.size(); ++block) {
        float* const there = memory + whole + block * elements;
        float* const mine = block == rank ? memory + part : nullptr;
        made.blocks[block].push_back({.from = gathers(call) ? mine : there,
                                      .to = gathers(call) ? there : mine,
                                      .elements = elements,
                                      .reduction = {}});
      }
    }
    return made;
  }

  // All tensors' results, end to end.
  std::vector<float> resultOf(std::size_t rank, std::size_t call) const {
    std::vector<float> result;
    const bool isPart = calls_[call].pattern == Pattern::ReduceScatter;
    for (std::size_t t = 0; t < calls_[call].elements.size(); ++t) {
      for (std::size_t block = 0; block < blocksOf(calls_[call]); ++block) {
        if (isPart && block != rank) continue;
        for (std::uint64_t i = 0; i < calls_[call].elements[t]; ++i) {
          float sum = 0;
          for (std::size_t from = 0; from < cluster_.world(); ++from)
            sum += gathers(call) && from != block ? 0 : valueOf(from, call, t, block, i);
          result.push_back(sum);
        }
      }
    }
    return result;
  }

  void use(std::size_t rank, std::size_t call) {
    SimulatedAccelerator& device = *cluster_.ranks[rank]->device;
    device.wait(device.callers(), ends_[rank][call]);
    device.compute(device.callers(), [this, rank, call] {
      std::vector<float>& memory = memoryOf(rank, call);
      const bool isPart = calls_[call].pattern == Pattern::ReduceScatter;
      for (const auto& [whole, part, elements] : placesIn(rank, call)) {
        const auto from = memory.begin() + static_cast<std::ptrdiff_t>(isPart ? part : whole);
        const std::uint64_t count = isPart ? elements : elements * blocksOf(calls_[call]);
        results_[rank][call].insert(results_[rank][call].end(), from, from + static_cast<std::ptrdiff_t>(count));
      }
      std::ranges::fill(memory, kUntouched);
    });
  }

  DeviceCluster& cluster_;
  const std::vector<Made> calls_;
  std::vector<std::size_t> made_;                                  // calls, by rank
  std::vector<std::array<std::vector<float>, kMemories>> memory_;  // by rank
  std::vector<std::vector<Accelerator::Event>> ends_;              // by rank and call
  std::vector<std::vector<std::vector<float>>> results_;           // by rank and call
};

}  // namespace fairring::testing
