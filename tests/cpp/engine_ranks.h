// Whole ranks in one process, for the engine's tests: real pipelines, shared memory and rails over a network that
// delivers in random order, each rank with a hand-stepped loop. Small integers, so sums are exact in any order.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <set>

#include "engine/pipeline.h"
#include "exchange/rails.h"
#include "exchange/shared_memory.h"
#include "memory_channels.h"
#include "plan/cost_rows.h"

namespace fairring::testing {

constexpr std::uint64_t kKiB = 1 << 10;

struct Machines {
  std::vector<int> ranks;    // of each machine
  bool interleaved = false;  // ranks dealt to the machines in turn
  int sites = 1;             // machines in turn
  bool inGroups = false;     // all plans are, from four machines on
};

inline GroupingFrom groupingOf(const Machines& machines) {
  return machines.inGroups ? GroupingFrom{.groups = 4, .only = 4} : GroupingFrom{};
}

inline std::vector<Place> placesOf(const Machines& machines) {
  std::vector<Place> places;
  const auto add = [&](std::size_t machine) {
    const auto site = machine % static_cast<std::size_t>(machines.sites);
    places.push_back({"machine" + std::to_string(machine), "site" + std::to_string(site)});
  };
  if (!machines.interleaved) {
    for (std::size_t m = 0; m < machines.ranks.size(); ++m) {
      for (int i = 0; i < machines.ranks[m]; ++i) add(m);
    }
    return places;
  }
  for (int i = 0; i < *std::ranges::max_element(machines.ranks); ++i) {
    for (std::size_t m = 0; m < machines.ranks.size(); ++m) {
      if (i < machines.ranks[m]) add(m);
    }
  }
  return places;
}

// Costs of a network with that time per message, which is otherwise free or not.
inline std::vector<CostRow> rowsWith(double perMessage, double bytesPerSecond, double latency = 1e-6) {
  const CostRow memory{1e-6, 0, 1e10, 1e10};
  const CostRow network{latency, perMessage, bytesPerSecond, 1e10};
  return {memory, network, network};
}

struct Rank {
  Rank(const Planner& planner, int rank, std::uint64_t staging, MemoryNetwork& network, EagerLimits limits)
      : rails(std::make_unique<Rails>(loop, rank, troubles(), limits)) {
    network.receivers[rank] = rails.get();
    network.loops[rank] = &loop;
    onLoop([this] { loop.onUncaught(this, [this](const Error& error) { errors.push_back(error.text()); }); });
    const Topology& topology = planner.topology();
    rails->use(memoryChannels(network, rank, topology.world()));
    const std::uint64_t express = Pipeline::expressBytesBeside(staging);
    onLoop([&] {
      machine = std::make_unique<SharedMemory>(loop, topology.ranksOf(topology.machineOf(rank)), rank,
                                               staging + express, troubles());
    });
    std::byte* const memory = machine->flags().staging();
    const bool isAlone = topology.ranksOf(topology.machineOf(rank)).size() == 1;
    const Pipeline::Levels levels{machine.get(), rails.get(), SharedMemory::kMostSlices, memory, staging,
                                  express,       isAlone};
    pipeline = std::make_unique<Pipeline>(planner, rank, levels);
  }
  Troubles troubles() {
    return {[this](const Error& error) { errors.push_back(error.text()); }, [this](int peer) { differs.insert(peer); },
            [this](int peer) { errors.push_back(concat("rank ", peer, " has left")); }};
  }
  ~Rank() {
    onLoop([this] {
      loop.forgetUncaught(this);
      pipeline.reset();
      rails.reset();
      machine.reset();
    });
  }
  void onLoop(const Loop::Task& task) {
    loop.post(task);
    loop.runOnce(std::chrono::milliseconds(0));
  }

  Loop loop;
  std::unique_ptr<Rails> rails;
  std::unique_ptr<SharedMemory> machine;
  std::unique_ptr<Pipeline> pipeline;
  std::vector<std::string> errors;
  std::set<int> differs;  // peers that made other calls
};

class Cluster {
 public:
  Cluster(const Machines& machines, std::uint64_t staging, std::uint64_t slice, EagerLimits limits = {},
          std::vector<CostRow> rows = builtInRows("tcp"))
      : planner(Topology(placesOf(machines), groupingOf(machines)), {staging, slice, std::move(rows)}) {
    for (int r = 0; r < world(); ++r) ranks.push_back(std::make_unique<Rank>(planner, r, staging, network, limits));
    for (int r = 0; r < world(); ++r) {
      for (const int peer : planner.topology().ranksOf(planner.topology().machineOf(r))) {
        if (peer != r) introduce(r, peer);
      }
      ranks[static_cast<std::size_t>(r)]->onLoop([&] { ranks[static_cast<std::size_t>(r)]->pipeline->open(); });
    }
  }

  int world() const { return planner.topology().world(); }

  // One step of a random rank's loop or one message, chosen at random.
  bool step(std::mt19937& random) {
    const auto pending = network.pending();
    const auto choice = random() % (ranks.size() + pending.size());
    if (choice < ranks.size()) {
      ranks[choice]->loop.runOnce(std::chrono::milliseconds(0));
      return true;
    }
    const auto pair = pending[choice - ranks.size()];
    EXPECT_TRUE(planner.peersOf(pair.first).contains(pair.second))
        << pair.first << " has no connection to " << pair.second;
    bool placed = true;
    ranks[static_cast<std::size_t>(pair.second)]->onLoop([&] { placed = network.deliver(pair, random()); });
    return placed;
  }

  MemoryNetwork network;
  Planner planner;
  std::vector<std::unique_ptr<Rank>> ranks;

 private:
  void introduce(int rank, int peer) {
    std::vector<Descriptor> descriptors;
    for (const int fd : ranks[static_cast<std::size_t>(peer)]->machine->flags().descriptors())
      descriptors.emplace_back(::dup(fd));
    ranks[static_cast<std::size_t>(rank)]->machine->flags().attach(peer, std::move(descriptors));
  }
};

// A small training script: every rank makes the same calls, and waits for each at a time of its own.
struct Script {
  std::vector<std::uint64_t> sizes;                  // elements of each call
  std::vector<std::vector<std::size_t>> waitBefore;  // [rank][call]: how many calls must be finished before it is made
};

class Player {
 public:
  Player(Cluster& cluster, const Script& script) : cluster_(cluster), script_(script) {
    const auto world = static_cast<std::size_t>(cluster.world());
    tensors.resize(world);
    results.assign(world, std::vector<std::vector<float>>(script.sizes.size()));
    made_.resize(world);
    finished.resize(world);
    for (std::size_t r = 0; r < world; ++r) {
      for (std::size_t c = 0; c < script.sizes.size(); ++c) tensors[r].push_back(input(r, c));
    }
  }

  std::vector<float> input(std::size_t rank, std::size_t call) const {
    std::vector<float> values(script_.sizes[call]);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>((rank * 7 + call * 3 + i * 5) % 64) - 31.0F;
    }
    return values;
  }
  // Small integers: exact in fp32, in any order.
  std::vector<float> expected(std::size_t call) const {
    std::vector<float> sum(script_.sizes[call], 0.0F);
    for (std::size_t r = 0; r < tensors.size(); ++r) {
      const std::vector<float> values = input(r, call);
      std::ranges::transform(sum, values, sum.begin(), std::plus<>());
    }
    return sum;
  }

  void makeCalls() {
    for (std::size_t r = 0; r < tensors.size(); ++r) makeCallsOf(r);
  }
  void makeCallsOf(std::size_t r) {
    while (made_[r] < script_.sizes.size() && finished[r] >= script_.waitBefore[r][made_[r]]) makeCall(r);
  }
  bool allFinished() const {
    return std::ranges::all_of(finished, [this](std::size_t count) { return count == script_.sizes.size(); });
  }

  std::vector<std::vector<std::vector<float>>> tensors;  // [rank][call]; used for something else once a call is done
  std::vector<std::vector<std::vector<float>>> results;  // likewise
  std::vector<std::size_t> finished;                     // calls, by rank

 private:
  static constexpr float kAfterwards = -1e6F;

  void makeCall(std::size_t rank) {
    const std::size_t call = made_[rank]++;
    Rank& self = *cluster_.ranks[rank];
    self.onLoop([&, call, rank] {
      self.pipeline->submit(
          {.operands = {{tensors[rank][call].data(), tensors[rank][call].size(), {.dtype = DType::Float32}}},
           .signature = {},
           .done =
               [this, call, rank](const Error& error) {
                 EXPECT_FALSE(error) << error.text();
                 results[rank][call] = tensors[rank][call];
                 std::ranges::fill(tensors[rank][call], kAfterwards);
                 ++finished[rank];
               }},
          call);
    });
  }

  Cluster& cluster_;
  const Script& script_;
  std::vector<std::size_t> made_;
};

// A few calls, small and larger; each rank waits for earlier ones at times of its own.
inline Script scriptOfWaits(int world, std::mt19937& random) {
  Script script;
  const std::size_t calls = 2 + random() % 6;
  for (std::size_t c = 0; c < calls; ++c) script.sizes.push_back(random() % (random() % 2 == 0 ? 64 : 60'000));
  for (int r = 0; r < world; ++r) {
    std::vector<std::size_t>& before = script.waitBefore.emplace_back();
    for (std::size_t c = 0; c < calls; ++c) before.push_back(random() % (c + 1));
  }
  return script;
}

inline void playToTheEnd(Cluster& cluster, const Script& script, std::mt19937& random) {
  Player player(cluster, script);
  constexpr int kMostSteps = 2'000'000;
  for (int step = 0; !player.allFinished(); ++step) {
    ASSERT_LT(step, kMostSteps) << "stalled";
    player.makeCalls();
    ASSERT_TRUE(cluster.step(random)) << "a part without a place";
    for (const auto& rank : cluster.ranks) ASSERT_TRUE(rank->errors.empty()) << rank->errors.front();
  }
  for (std::size_t call = 0; call < script.sizes.size(); ++call) {
    for (std::size_t r = 0; r < player.tensors.size(); ++r) {
      ASSERT_EQ(player.results[r][call], player.expected(call)) << "rank " << r << ", call " << call;
    }
  }
}

inline Script inOrder(std::size_t world, std::vector<std::uint64_t> sizes) {
  Script script{std::move(sizes), {}};
  script.waitBefore.assign(world, std::vector<std::size_t>(script.sizes.size(), 0));
  return script;
}

}  // namespace fairring::testing
