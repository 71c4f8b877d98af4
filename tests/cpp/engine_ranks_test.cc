// Whole ranks in one process: real pipelines, shared memory and rails over a network that delivers in random order,
// each rank with a hand-stepped loop. What they compute is compared with sums made another way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <set>

#include "engine/pipeline.h"
#include "exchange/rails.h"
#include "exchange/shared_memory.h"
#include "memory_pipes.h"
#include "plan/cost_rows.h"

namespace fairring {
namespace {

using testing::MemoryNetwork;
using testing::MemoryPipes;

constexpr std::uint64_t kKiB = 1 << 10;

struct Machines {
  std::vector<int> ranks;    // of each machine
  bool interleaved = false;  // ranks dealt to the machines in turn
  int sites = 1;             // machines in turn
};

std::vector<Place> placesOf(const Machines& machines) {
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

struct Rank {
  Rank(const Planner& planner, int rank, std::uint64_t staging, MemoryNetwork& network, EagerLimits limits)
      : pipes(network, rank), rails(std::make_unique<Rails>(loop, rank, troubles(), limits)) {
    network.receivers[rank] = rails.get();
    network.loops[rank] = &loop;
    rails->use(pipes);
    const Topology& topology = planner.topology();
    onLoop([&] {
      machine =
          std::make_unique<SharedMemory>(loop, topology.ranksOf(topology.machineOf(rank)), rank, staging, troubles());
    });
    pipeline = std::make_unique<Pipeline>(
        planner, rank,
        Pipeline::Levels{machine.get(), rails.get(), SharedMemory::kMostSlices, machine->marks().staging(), staging});
  }
  Troubles troubles() {
    return {[this](const Error& error) { errors.push_back(error.text()); }, [this](int peer) { differs.insert(peer); }};
  }
  ~Rank() {
    onLoop([this] {
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
  MemoryPipes pipes;
  std::unique_ptr<Rails> rails;
  std::unique_ptr<SharedMemory> machine;
  std::unique_ptr<Pipeline> pipeline;
  std::vector<std::string> errors;
  std::set<int> differs;  // peers that made other calls
};

class Cluster {
 public:
  Cluster(const Machines& machines, std::uint64_t staging, std::uint64_t slice, EagerLimits limits = {})
      : planner(Topology(placesOf(machines)), {staging, slice, builtInRows("tcp")}) {
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
    for (const int fd : ranks[static_cast<std::size_t>(peer)]->machine->marks().descriptors())
      descriptors.emplace_back(::dup(fd));
    ranks[static_cast<std::size_t>(rank)]->machine->marks().attach(peer, std::move(descriptors));
  }
};

// A training script in small: every rank makes the same calls, and waits for each when it likes.
struct Script {
  std::vector<std::uint64_t> sizes;                  // elements of each call
  std::vector<std::vector<std::size_t>> waitBefore;  // [rank][call]: how many calls must be finished before it is made
};

class Player {
 public:
  Player(Cluster& cluster, const Script& script) : cluster_(cluster), script_(script) {
    const auto world = static_cast<std::size_t>(cluster.world());
    tensors.resize(world);
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

  std::vector<std::vector<std::vector<float>>> tensors;  // [rank][call]
  std::vector<std::size_t> finished;                     // calls, by rank

 private:
  void makeCall(std::size_t rank) {
    const std::size_t call = made_[rank]++;
    Rank& self = *cluster_.ranks[rank];
    self.onLoop([&, call, rank] {
      self.pipeline->submit({.data = tensors[rank][call].data(),
                             .elements = tensors[rank][call].size(),
                             .reduction = {.dtype = DType::Float32},
                             .signature = {},
                             .done =
                                 [this, rank](const Error& error) {
                                   EXPECT_FALSE(error) << error.text();
                                   ++finished[rank];
                                 }},
                            call);
    });
  }

  Cluster& cluster_;
  const Script& script_;
  std::vector<std::size_t> made_;
};

void playToTheEnd(Cluster& cluster, const Script& script, std::mt19937& random) {
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
      ASSERT_EQ(player.tensors[r][call], player.expected(call)) << "rank " << r << ", call " << call;
    }
  }
}

Script inOrder(std::size_t world, std::vector<std::uint64_t> sizes) {
  Script script{std::move(sizes), {}};
  script.waitBefore.assign(world, std::vector<std::size_t>(script.sizes.size(), 0));
  return script;
}

const Machines kLayouts[] = {
    {{1}},    {{2}},          {{4}},       {{1, 1}},          {{2, 2}}, {{2, 2}, true},     {{1, 1, 1, 1}},
    {{3, 1}}, {{1, 3}, true}, {{4, 3, 2}}, {{2, 2, 2}, true}, {{1, 2}}, {{2, 2}, false, 2}, {{1, 1, 1, 2}, false, 2},
};

// All parts small, none, and some; and credits that last, or suffice for one part, or for none.
const EagerLimits kEagerLimits[] = {{}, {0, 0}, {4 * kKiB, 8 * kKiB}, {4 * kKiB, 0}, {64 * kKiB, 16 * kKiB}};

TEST(Ranks, SumsAreExactForEverySizeAndLayout) {
  for (const Machines& machines : kLayouts) {
    Cluster cluster(machines, 256 * kKiB, 32 * kKiB);
    const auto world = static_cast<std::uint64_t>(cluster.world());
    const std::uint64_t slice = 32 * kKiB / sizeof(float);
    std::mt19937 random(7);
    const Script script =
        inOrder(world, {0, 1, world - 1, world, world + 1, slice - 1, slice, slice + 1, 5 * slice + 17});
    playToTheEnd(cluster, script, random);
    if (HasFatalFailure()) FAIL() << cluster.planner.topology().describe();
  }
}

TEST(Ranks, RanksMayWaitWhereTheyLikeWithLittleStaging) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    std::mt19937 random(seed);
    const Machines& machines = kLayouts[random() % std::size(kLayouts)];
    Cluster cluster(machines, 256 * kKiB, 64 * kKiB, kEagerLimits[random() % std::size(kEagerLimits)]);
    Script script;
    const std::size_t calls = 2 + random() % 6;
    for (std::size_t c = 0; c < calls; ++c) script.sizes.push_back(random() % (random() % 2 == 0 ? 64 : 60'000));
    for (int r = 0; r < cluster.world(); ++r) {
      std::vector<std::size_t>& before = script.waitBefore.emplace_back();
      for (std::size_t c = 0; c < calls; ++c) before.push_back(random() % (c + 1));
    }
    playToTheEnd(cluster, script, random);
    if (HasFatalFailure()) FAIL() << "seed " << seed << ", " << cluster.planner.topology().describe();
  }
}

// Values that no order of summation leaves alone, so equal bits mean an equal order.
TEST(Ranks, AllRanksHaveTheSameBitsInEveryScheduleForEveryPlanAndSliceSize) {
  const std::uint64_t elements = 20'011;
  for (const Machines& machines : {Machines{{2, 3}}, Machines{{1, 1, 1}}, Machines{{2, 1, 2}, true}}) {
    std::vector<float> first;
    std::set<std::string> plans;
    for (unsigned run = 0; run < 12; ++run) {
      std::mt19937 random(run);
      const std::uint64_t slice = std::array{16 * kKiB, 64 * kKiB, 1024 * kKiB}[run % 3];
      Cluster cluster(machines, 4 * slice * 4, slice);
      plans.insert(describe(cluster.planner.choose(elements, sizeof(float)).plan));
      std::vector<std::vector<float>> tensors;
      std::size_t finished = 0;
      for (int r = 0; r < cluster.world(); ++r) {
        std::vector<float>& tensor = tensors.emplace_back(elements);
        std::mt19937 values(static_cast<unsigned>(r));
        for (float& value : tensor) value = std::uniform_real_distribution<float>(-1e3F, 1e3F)(values);
      }
      for (int r = 0; r < cluster.world(); ++r) {
        Rank& rank = *cluster.ranks[static_cast<std::size_t>(r)];
        rank.onLoop([&] {
          rank.pipeline->submit({.data = tensors[static_cast<std::size_t>(r)].data(),
                                 .elements = elements,
                                 .reduction = {.dtype = DType::Float32},
                                 .signature = {},
                                 .done = [&](const Error&) { ++finished; }},
                                1);
        });
      }
      while (finished < tensors.size()) ASSERT_TRUE(cluster.step(random));
      if (first.empty()) first = tensors[0];
      for (const auto& tensor : tensors) {
        ASSERT_EQ(std::memcmp(tensor.data(), first.data(), elements * sizeof(float)), 0) << "run " << run;
      }
    }
    if (machines.ranks == std::vector{1, 1, 1}) {
      EXPECT_EQ(plans.size(), 2U) << "both the one-shot and the two-shot plan were meant to occur";
    }
  }
}

TEST(Ranks, NoRankSendsMoreThanItsShareOfEachWay) {
  const std::uint64_t elements = 1 << 20;
  const std::uint64_t bytes = elements * sizeof(float);
  for (const std::vector<int>& sizes : {std::vector{8, 7}, std::vector{3, 1}, std::vector{4, 3, 2}}) {
    Cluster cluster({sizes}, 64 << 20, 25 << 20);
    std::mt19937 random(3);
    playToTheEnd(cluster, inOrder(static_cast<std::size_t>(cluster.world()), {elements}), random);
    const Topology& topology = cluster.planner.topology();
    const auto machines = static_cast<std::uint64_t>(topology.machines());
    for (int r = 0; r < cluster.world(); ++r) {
      const std::uint64_t ranks = topology.ranksOf(topology.machineOf(r)).size();
      const std::uint64_t slices = 64;  // at most, each with its own rounding
      const std::uint64_t held = (bytes + ranks - 1) / ranks + 64 * slices;
      EXPECT_LE(cluster.network.bytesSentBy[r], 2 * held * (machines - 1) / machines + 64 * slices * machines)
          << "rank " << r << " of " << topology.describe();
    }
  }
}

// One rank is far behind: what the others send it in advance is bounded by their credit.
TEST(Ranks, WhoIsBehindHoldsNoMoreThanTheCredit) {
  for (const EagerLimits& limits : kEagerLimits) {
    Cluster cluster({{1, 1, 1}}, 512 * kKiB, 32 * kKiB, limits);
    const std::size_t calls = 60;
    Script script = inOrder(3, std::vector<std::uint64_t>(calls, 900));
    std::ranges::fill(script.waitBefore[2], 0);
    std::mt19937 random(11);
    Player player(cluster, script);
    player.makeCallsOf(0);
    player.makeCallsOf(1);
    for (int step = 0; step < 20'000; ++step) ASSERT_TRUE(cluster.step(random));
    const std::uint64_t sent = cluster.network.bytesSentTo[2];
    EXPECT_LE(sent, 2 * limits.creditBytes);
    EXPECT_EQ(sent > 0, limits.creditBytes >= 4 * kKiB) << "what fits is sent in advance";
    for (int step = 0; !player.allFinished(); ++step) {
      ASSERT_LT(step, 1'000'000) << "stalled";
      player.makeCallsOf(2);
      ASSERT_TRUE(cluster.step(random));
    }
    for (std::size_t call = 0; call < calls; ++call) ASSERT_EQ(player.tensors[2][call], player.expected(call));
  }
}

TEST(Ranks, DifferentCallsAreAMismatchNotAWrongSum) {
  struct Calls {
    std::uint64_t mine;
    std::uint64_t others;
  };
  for (const Calls& calls : {Calls{100, 200}, {0, 100}, {100, 0}, {100, 100}}) {
    for (const Machines& machines : {Machines{{2}}, Machines{{1, 1}}}) {
      Cluster cluster(machines, 256 * kKiB, 64 * kKiB);
      std::vector<double> memory(400, 1.0);
      const auto submit = [&](std::size_t rank, std::uint64_t elements) {
        cluster.ranks[rank]->onLoop([&] {
          cluster.ranks[rank]->pipeline->submit({.data = memory.data() + 200 * rank,
                                                 .elements = elements,
                                                 .reduction = {},
                                                 .signature = {},
                                                 .done = [](const Error&) {}},
                                                rank);
        });
      };
      submit(0, calls.mine);
      submit(1, calls.others);
      std::mt19937 random(5);
      const auto noticed = [&] {
        return cluster.ranks[0]->differs.contains(1) || cluster.ranks[1]->differs.contains(0);
      };
      for (int step = 0; step < 100'000 && !noticed(); ++step) cluster.step(random);
      EXPECT_TRUE(noticed()) << calls.mine << " against " << calls.others;
      for (const auto& rank : cluster.ranks) EXPECT_TRUE(rank->errors.empty()) << rank->errors.front();
    }
  }
}

}  // namespace
}  // namespace fairring
