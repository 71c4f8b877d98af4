// The requirements of gated chains on the device and on each other: every event and every gate, launches in program
// order, and gates that open when the group fails. Each test leaves one requirement out, and has to see the failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <span>
#include <string>

#include "device_ranks.h"
#include "exchange/slice_header.h"

namespace fairring::testing {
namespace {

using Settings = DeviceRank::Settings;

constexpr std::size_t kStreams = 4;
constexpr std::size_t kCallers = kStreams;  // the index of the callers' stream

// Two machines in which the two-shot plan is taken: two steps on the rails, three times that a slice tells.
constexpr std::size_t kTellsOfSlice = 3;
const std::vector<CostRow> kTwoShot = {{1e-6, 0, 1e10, 1e10}, {1e-6, 0, 1e7, 1e10}, {1e-6, 0, 1e7, 1e10}};
const std::vector<CostRow> kOneShot = {{1e-6, 0, 1e10, 1e10}, {1, 0, 1e12, 1e10}, {1, 0, 1e12, 1e10}};

std::size_t gateOf(const SimulatedAccelerator::Word* word) {
  return reinterpret_cast<std::uintptr_t>(word) / sizeof(*word) % Gates::kGates;
}

struct Omission {
  const char* what;
  std::function<void(Settings&)> omit;
};

const Omission kOmissions[] = {
    {"the event behind which the input is there",
     [](Settings& s) { s.omitsWait = [](auto, auto recorded) { return recorded == kCallers; }; }},
    {"the event that ends the slice which had the place on the device before",
     [](Settings& s) {
       s.omitsWait = [](auto waits, auto recorded) { return waits < kStreams && recorded < kStreams; };
     }},
    {"the event that the user waits for",
     [](Settings& s) { s.omitsWait = [](auto waits, auto) { return waits == kCallers; }; }},
    {"the gate of the place in pinned staging",
     [](Settings& s) { s.omitsGate = [](auto word) { return gateOf(word) == 0; }; }},
    {"the gate of what the rails bring first",
     [](Settings& s) { s.omitsGate = [](auto word) { return gateOf(word) == 1; }; }},
};
const Omission kOmissionsOfAllReduces[] = {
    {"the gate of what is gathered", [](Settings& s) { s.omitsGate = [](auto word) { return gateOf(word) == 2; }; }},
    {"that the machine's sum is out",
     [](Settings& s) { s.tellsEarly = [](auto time) { return time % kTellsOfSlice == 0; }; }},
    {"that the reduced shard is out",
     [](Settings& s) { s.tellsEarly = [](auto time) { return time % kTellsOfSlice == 1; }; }},
    {"that the device is done with the slice",
     [](Settings& s) { s.tellsEarly = [](auto time) { return time % kTellsOfSlice == 2; }; }},
};
// A slice tells twice: that its bytes are out, and that the device is done with it.
const Omission kOmissionsOfHalves[] = {
    {"that what is sent is out", [](Settings& s) { s.tellsEarly = [](auto time) { return time % 2 == 0; }; }},
    {"that the device is done with the slice",
     [](Settings& s) { s.tellsEarly = [](auto time) { return time % 2 == 1; }; }},
};

// Whether a program of these calls computes the right results.
bool runs(unsigned seed, Pattern pattern, const std::vector<CostRow>& rows, const Settings& settings) {
  DeviceCluster cluster({{2, 1, 1}}, 96 * kKiB, 32 * kKiB, seed, [&](int) { return settings; }, rows);
  const std::uint64_t slice = 32 * kKiB / sizeof(float);
  std::vector<DeviceProgram::Made> calls;
  for (const std::uint64_t elements :
       {3 * slice, 2 * slice + 5, std::uint64_t{700}, slice, 4 * slice, std::uint64_t{9}}) {
    const bool isHalf = pattern != Pattern::AllReduce;
    calls.push_back({pattern, {isHalf ? elements / 4 : elements}, pattern == Pattern::AllGather && elements % 8 == 0});
  }
  DeviceProgram program(cluster, calls);
  program.makeAtRandom();
  const bool over = cluster.drain();
  const bool right = over && program.wrong() == 0;
  if (!over) cluster.giveUp();
  return right;
}

void expectSeen(Pattern pattern, const std::vector<CostRow>& rows, std::span<const Omission> omissions) {
  for (const Omission& omission : omissions) {
    Settings lacking;
    omission.omit(lacking);
    bool seen = false;
    for (unsigned seed = 0; seed < 60 && !seen; ++seed) {
      ASSERT_TRUE(runs(seed, pattern, rows, {})) << "with everything, seed " << seed;
      seen = !runs(seed, pattern, rows, lacking);
    }
    EXPECT_TRUE(seen) << "nobody missed " << omission.what << " of pattern " << static_cast<int>(pattern);
  }
}

TEST(GatedOrder, WhateverIsLeftOutIsSeen) {
  expectSeen(Pattern::AllReduce, kTwoShot, kOmissions);
  expectSeen(Pattern::AllReduce, kTwoShot, kOmissionsOfAllReduces);
  expectSeen(Pattern::AllReduce, kOneShot, std::span(kOmissions).last(1));
  for (const Pattern pattern : {Pattern::ReduceScatter, Pattern::AllGather}) {
    expectSeen(pattern, builtInRows("tcp"), kOmissions);
    expectSeen(pattern, builtInRows("tcp"), kOmissionsOfHalves);
  }
}

// Messages of the later call come first to this rank, of the earlier one first to all others.
void deliverOppositely(DeviceCluster& cluster, int contrary) {
  for (const auto& [pair, queue] : cluster.network.queues) {
    const SliceId wanted{SliceQueue::Device, pair.second == contrary ? 1U : 0U};
    for (std::size_t i = 0; i < queue.size(); ++i) {
      const auto header = std::bit_cast<SliceHeader>(queue[i].messages.front().header);
      if (header.slice != wanted.onWire()) continue;
      DeviceRank& receiver = *cluster.ranks[static_cast<std::size_t>(pair.second)];
      return receiver.onLoop([&, pair = pair] { cluster.network.deliver(pair, i); });
    }
  }
  cluster.step();
}

TEST(GatedOrder, CollectivesBetweenTwoCallsMeetWhateverTheNetworkDoes) {
  for (const std::size_t connections : {1, 2, 8, 32}) {
    for (unsigned seed = 0; seed < 10; ++seed) {
      Settings settings;
      settings.connections = connections;
      DeviceCluster cluster({{2, 2}}, 256 * kKiB, 64 * kKiB, seed, [&](int) { return settings; });
      std::vector<std::vector<float>> tensors(2 * cluster.world(), std::vector<float>(3000, 1.0F));
      for (std::size_t r = 0; r < cluster.world(); ++r) {
        DeviceRank& rank = *cluster.ranks[r];
        rank.call({.data = tensors[2 * r].data(), .elements = 3000, .reduction = {}}, 1);
        rank.device->meet(rank.device->callers(), 0);
        rank.call({.data = tensors[2 * r + 1].data(), .elements = 3000, .reduction = {}}, 2);
      }
      for (int i = 0; i < 5000; ++i) deliverOppositely(cluster, 0);
      ASSERT_TRUE(cluster.drain()) << "stalled with " << connections << " queues, seed " << seed;
      for (const auto& tensor : tensors) ASSERT_EQ(tensor, std::vector<float>(3000, 4.0F));
    }
  }
}

// The same two calls on a machine whose ranks launch the way back when their own network is done: in opposite orders.
TEST(GatedOrder, LaunchesInTheOrderOfTheNetworkDeadlock) {
  SimulatedMachine machine(2);
  SimulatedAccelerator first(machine, 0, 1, {});
  SimulatedAccelerator second(machine, 1, 2, {});
  std::vector<float> memory(64, 1.0F);
  std::array<Slice, 2> slices;
  const Planner planner(Topology({{"a", ""}, {"a", ""}}), {1 << 20, 1 << 20, builtInRows("tcp")});
  for (std::uint64_t i = 0; i < 2; ++i) {
    slices[i].id.sequence = i;
    slices[i].layout = std::make_shared<Layout>(planner.layoutOf(planner.choose(64).plan, 0, 64));
    slices[i].image = reinterpret_cast<std::byte*>(memory.data());
    slices[i].portions = {{0, 16, slices[i].image, slices[i].image, {}}};
  }
  for (SimulatedAccelerator* device : {&first, &second}) {
    device->reduceScatter(device->stream(0), slices[0]);
    device->meet(device->callers(), 0);
    device->reduceScatter(device->stream(1), slices[1]);
  }
  const auto run = [&] {
    while (first.step() || second.step()) {
    }
  };
  run();
  EXPECT_TRUE(first.idle() && second.idle());
  first.allGather(first.stream(1), slices[1]);
  second.allGather(second.stream(0), slices[0]);
  run();
  first.allGather(first.stream(0), slices[0]);
  second.allGather(second.stream(1), slices[1]);
  run();
  EXPECT_FALSE(first.idle() || second.idle()) << "the ways back met in different orders";
  machine.abort(0);
  machine.abort(1);
  run();
}

// A program that frees memory of the device, or waits for the device, waits for all of its streams.
TEST(GatedOrder, WhoWaitsForTheWholeDeviceBeforeEachCallHoldsNobodyUpForEver) {
  DeviceCluster cluster({{2, 1}}, 256 * kKiB, 64 * kKiB, 3);
  DeviceProgram program(cluster, std::vector<std::uint64_t>(6, 30'000));
  while (program.hasMore(1)) program.makeNext(1);
  while (program.hasMore(2)) program.makeNext(2);
  for (int step = 0; program.hasMore(0); ++step) {
    ASSERT_LT(step, 1'000'000) << "stalled";
    if (cluster.ranks[0]->device->idle()) program.makeNext(0);
    cluster.step();
  }
  ASSERT_TRUE(cluster.drain());
  EXPECT_EQ(program.wrong(), 0U);
}

// Once a device is full, an enqueuing caller waits for it, and it for gates, whose slices the loop must know by then.
TEST(GatedOrder, ACallOfMoreSlicesThanTheDeviceTakesAtOnceIsCarriedOut) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    DeviceCluster* world = nullptr;
    DeviceCluster cluster({{2, 1}}, 96 * kKiB, 16 * kKiB, seed, [&](int rank) {
      Settings settings;
      settings.streams = 2;
      if (rank == 0) settings.capacity = 4;  // not the part of a slice behind its first gate
      settings.meanwhile = [&world] { world->step(); };
      return settings;
    });
    world = &cluster;
    DeviceProgram program(cluster, {60'000, 30'000});
    for (const std::size_t rank : {1, 2, 0}) {
      while (program.hasMore(rank)) program.makeNext(rank);
    }
    ASSERT_TRUE(cluster.drain()) << "stalled: seed " << seed;
    ASSERT_EQ(program.wrong(), 0U) << "seed " << seed;
  }
}

// A stream's program asks the Work once it is through a gate.
TEST(GatedOrder, TheErrorIsThereBeforeAnyGateOpens) {
  DeviceCluster cluster({{1, 1}}, 256 * kKiB, 64 * kKiB, 4);
  std::vector<float> tensor(50'000, 1.0F);
  DeviceRank& alone = *cluster.ranks[0];  // the other rank never makes its call
  int told = 0;
  alone.onEnded = [&] {
    ++told;
    while (alone.device->step()) {
    }
    EXPECT_FALSE(alone.device->idle()) << "a gate was open";
  };
  alone.call({.data = tensor.data(), .elements = tensor.size(), .reduction = {}}, 1);
  for (int i = 0; i < 2000; ++i) cluster.step();
  alone.onLoop([&] { alone.fail(makeError(ErrorKind::PeerDied, "rank 1 died")); });
  EXPECT_EQ(told, 1);
  ASSERT_TRUE(cluster.drain()) << "a gate stayed shut";
}

TEST(GatedOrder, AFailureOpensEveryGateAndEndsEveryCall) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    DeviceCluster cluster({{1, 1}}, 256 * kKiB, 64 * kKiB, seed);
    std::vector<float> tensor(200'000, 1.0F);
    DeviceRank& alone = *cluster.ranks[0];  // the other rank never makes its call
    for (std::uint64_t call = 0; call < 3; ++call) {
      alone.call({.data = tensor.data(), .elements = tensor.size(), .reduction = {}}, call);
    }
    for (unsigned i = 0; i < seed * 50; ++i) cluster.step();
    EXPECT_FALSE(alone.device->idle());
    alone.onLoop([&] { alone.fail(makeError(ErrorKind::PeerDied, "rank 1 died")); });
    alone.call({.data = tensor.data(), .elements = 100, .reduction = {}}, 3);
    ASSERT_TRUE(cluster.drain()) << "a gate stayed shut";
    ASSERT_EQ(alone.ended.size(), 4U);
    for (const Error& error : alone.ended) EXPECT_EQ(error.text(), "rank 1 died");
    EXPECT_TRUE(std::ranges::all_of(tensor, [](float element) { return std::isnan(element); })) << "garbage";
  }
}

TEST(GatedOrder, ACallThatNobodyWaitsForIsCarriedOut) {
  DeviceCluster cluster({{2, 1}}, 256 * kKiB, 64 * kKiB, 9);
  std::vector<std::vector<float>> tensors(3, std::vector<float>(50'000, 2.0F));
  for (std::size_t r = 0; r < tensors.size(); ++r) {
    cluster.ranks[r]->call({.data = tensors[r].data(), .elements = tensors[r].size(), .reduction = {}}, 1);
  }
  ASSERT_TRUE(cluster.drain());
  for (const auto& tensor : tensors) EXPECT_EQ(tensor, std::vector<float>(50'000, 6.0F));
}

constexpr float kOthers = 7e7F;  // what the next owner of some memory writes there

// A program that drops a tensor right after the call gives its memory away when the call ends for the loop.
bool leavesFreedMemoryAlone(unsigned seed, const Settings& settings) {
  DeviceCluster cluster({{2, 1, 1}}, 96 * kKiB, 32 * kKiB, seed, [&](int) { return settings; }, kTwoShot);
  std::vector<std::vector<float>> tensors(cluster.world(), std::vector<float>(20'000, 1.0F));
  for (std::size_t r = 0; r < cluster.world(); ++r) {
    DeviceRank& rank = *cluster.ranks[r];
    rank.onEnded = [&tensor = tensors[r]] { std::ranges::fill(tensor, kOthers); };
    rank.call({.data = tensors[r].data(), .elements = tensors[r].size(), .reduction = {}}, 1);
  }
  if (!cluster.drain()) {
    cluster.giveUp();
    return false;
  }
  return std::ranges::all_of(tensors, [](const auto& tensor) { return tensor == std::vector(tensor.size(), kOthers); });
}

TEST(GatedOrder, MemoryThatIsFreeAfterTheCallIsNeitherReadNorWritten) {
  Settings early;
  early.tellsEarly = [](auto time) { return time % kTellsOfSlice == 2; };
  bool seen = false;
  for (unsigned seed = 0; seed < 20; ++seed) {
    ASSERT_TRUE(leavesFreedMemoryAlone(seed, {})) << "seed " << seed;
    seen = seen || !leavesFreedMemoryAlone(seed, early);
  }
  EXPECT_TRUE(seen) << "nobody missed that the device is done with the memory";
}

// A task that the device has posted holds the exchange while it runs, and the chain may end meanwhile.
TEST(GatedOrder, TheLoopMayBeTheLastToHoldTheExchange) {
  DeviceCluster cluster({{1, 1}}, 256 * kKiB, 64 * kKiB, 2);
  DeviceRank& rank = *cluster.ranks[0];
  rank.onLoop([&] { rank.fail(makeError(ErrorKind::Aborted, "the group ended")); });
  rank.chain.reset();
  rank.onLoop([&] { rank.exchange.reset(); });
  EXPECT_EQ(rank.exchange, nullptr);
}

// Lines of gates and places in staging are reused again and again.
TEST(GatedOrder, GatesCountUpOverManyCalls) {
  DeviceCluster cluster({{1, 1}}, 96 * kKiB, 32 * kKiB, 21);
  DeviceProgram program(cluster, std::vector<std::uint64_t>(5 * Gates::kLines, 33));
  program.makeAll();
  ASSERT_TRUE(cluster.drain());
  EXPECT_EQ(program.wrong(), 0U);
}

}  // namespace
}  // namespace fairring::testing
