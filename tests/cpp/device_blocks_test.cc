// Reduce-scatters and all-gathers by chains on simulated devices, among one another and among all-reduces, under any
// schedule; compared with sums made another way, and with the bits of CPU tensors. Then every event, gate and tell that
// they need, left out in turn.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <random>
#include <string>

#include "device_ranks.h"

namespace fairring::testing {
namespace {

using Settings = DeviceRank::Settings;

const Machines kLayouts[] = {
    {{1, 1}},
    {{2, 2}},
    {{2, 2}, true},
    {{1, 1, 1}},
    {{3, 1}},
    {{1, 3}, true},
    {{2, 2, 2}, true},
    {{3, 3}},
    {{2, 2}, false, 2},
    {{1, 2}},
    {{3, 2, 1}},
    {{1, 1, 1, 2}, false, 2},
    {{2, 1, 2, 1}, true, 1, true},
    {{1, 1, 1, 1, 1, 1, 1, 1}, false, 1, true},
};

struct Half {
  Pattern pattern;
  std::vector<std::uint64_t> elements;  // of each tensor's blocks
  bool inPlace = false;                 // of an all-gather: the input is this rank's block of the output
};

// A program on each rank's device, which has memory for two calls: it computes inputs, makes a call, and uses the
// result when it needs the memory again.
class BlocksProgram {
 public:
  static constexpr float kUntouched = 1e9F;

  BlocksProgram(DeviceCluster& cluster, std::vector<Half> calls) : cluster_(cluster), calls_(std::move(calls)) {
    std::uint64_t most = 0;
    for (const Half& call : calls_) most = std::max(most, floatsOf(call));
    results_.resize(cluster.world(), std::vector<std::vector<float>>(calls_.size()));
    ends_.resize(cluster.world(), std::vector<Accelerator::Event>(calls_.size()));
    made_.resize(cluster.world(), 0);
    memory_.resize(cluster.world());
    for (auto& memories : memory_) memories.fill(std::vector<float>(most, kUntouched));
  }

  bool hasMore(std::size_t rank) const { return made_[rank] < calls_.size(); }
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

  // The number of wrong elements of results, of all ranks and calls. After the devices have come to their end.
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

  static float valueOf(std::size_t rank, std::size_t call, std::size_t tensor, std::size_t block, std::uint64_t i) {
    return static_cast<float>((rank * 31 + call * 17 + tensor * 7 + block * 3 + i * 5) % 64) - 31.0F;
  }

  bool gathers(std::size_t call) const { return calls_[call].pattern == Pattern::AllGather; }
  // Each tensor has the whole, of all blocks, followed by a part of the size of one block.
  std::uint64_t floatsOf(const Half& call) const {
    std::uint64_t floats = 0;
    for (const std::uint64_t elements : call.elements) floats += (cluster_.world() + 1) * elements;
    return floats;
  }
  struct Places {  // in a rank's memory
    std::uint64_t whole;
    std::uint64_t part;
    std::uint64_t elements;
  };
  std::vector<Places> placesIn(std::size_t rank, std::size_t call) const {
    std::vector<Places> places;
    std::uint64_t at = 0;
    for (const std::uint64_t elements : calls_[call].elements) {
      const std::uint64_t part = calls_[call].inPlace ? at + rank * elements : at + cluster_.world() * elements;
      places.push_back({at, part, elements});
      at += (cluster_.world() + 1) * elements;
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
        for (std::size_t block = 0; block < cluster_.world() && !gathers(call); ++block)
          memory[whole + block * elements + i] = valueOf(rank, call, t, block, i);
      }
    }
  }

  Call engineCall(std::size_t rank, std::size_t call) {
    float* const memory = memoryOf(rank, call).data();
    Call made{.pattern = calls_[call].pattern, .signature = {}, .done = nullptr};
    made.blocks.resize(cluster_.world());
    for (const auto& [whole, part, elements] : placesIn(rank, call)) {
      for (std::size_t block = 0; block < cluster_.world(); ++block) {
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
    for (std::size_t t = 0; t < calls_[call].elements.size(); ++t) {
      for (std::size_t block = 0; block < cluster_.world(); ++block) {
        if (!gathers(call) && block != rank) continue;
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
      for (const auto& [whole, part, elements] : placesIn(rank, call)) {
        const auto from = memory.begin() + static_cast<std::ptrdiff_t>(gathers(call) ? whole : part);
        const std::uint64_t count = gathers(call) ? elements * cluster_.world() : elements;
        results_[rank][call].insert(results_[rank][call].end(), from, from + static_cast<std::ptrdiff_t>(count));
      }
      std::ranges::fill(memory, kUntouched);
    });
  }

  DeviceCluster& cluster_;
  const std::vector<Half> calls_;
  std::vector<std::size_t> made_;                                  // calls, by rank
  std::vector<std::array<std::vector<float>, kMemories>> memory_;  // by rank
  std::vector<std::vector<Accelerator::Event>> ends_;              // by rank and call
  std::vector<std::vector<std::vector<float>>> results_;           // by rank and call
};

TEST(DeviceBlocks, AreExactForEverySizeAndLayout) {
  for (const Machines& machines : kLayouts) {
    DeviceCluster cluster(machines, 256 * kKiB, 32 * kKiB, 7);
    std::vector<Half> calls;
    for (const std::uint64_t elements : {0, 1, 15, 16, 17, 1000, 9'000}) {
      calls.push_back({Pattern::ReduceScatter, {elements}});
      calls.push_back({Pattern::AllGather, {elements}, elements % 2 == 0});
    }
    BlocksProgram program(cluster, calls);
    program.makeAll();
    ASSERT_TRUE(cluster.drain()) << "stalled: " << cluster.planner.topology().describe();
    ASSERT_EQ(program.wrong(), 0U) << cluster.planner.topology().describe();
    for (const auto& rank : cluster.ranks)
      EXPECT_EQ(rank->ended.size(), calls.size()) << "the loop knows of each call's end";
  }
}

TEST(DeviceBlocks, AreExactInEveryScheduleWithLittleStagingAndFewQueues) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const Machines& machines = kLayouts[random() % std::size(kLayouts)];
    Settings settings;
    settings.streams = 1 + random() % 4;
    settings.connections = std::array<std::size_t, 3>{1, 2, 32}[random() % 3];
    DeviceCluster cluster(machines, 256 * kKiB, 64 * kKiB, seed, [&](int) { return settings; });
    std::vector<Half> calls;
    for (std::size_t c = 2 + random() % 6; c > 0; --c) {
      Half& call = calls.emplace_back(random() % 2 == 0 ? Pattern::ReduceScatter : Pattern::AllGather);
      for (std::size_t t = 1 + random() % 3; t > 0; --t)
        call.elements.push_back(random() % (random() % 2 == 0 ? 64 : 12'000));
      call.inPlace = call.pattern == Pattern::AllGather && random() % 2 == 0;
    }
    BlocksProgram program(cluster, calls);
    program.makeAtRandom();
    ASSERT_TRUE(cluster.drain()) << "stalled: seed " << seed << ", " << cluster.planner.topology().describe();
    ASSERT_EQ(program.wrong(), 0U) << "seed " << seed << ", " << cluster.planner.topology().describe();
  }
}

using Bytes = std::vector<std::byte>;

// A reduce-scatter of one tensor on one rank.
struct Scattered {
  Bytes input;
  Bytes output;

  Call call(const Reduction& reduction, std::uint64_t elements, double scale, std::size_t rank, std::size_t world) {
    Call made{.pattern = Pattern::ReduceScatter, .scale = scale, .signature = {}, .done = nullptr};
    for (std::size_t block = 0; block < world; ++block) {
      made.blocks.push_back({{.from = input.data() + block * output.size(),
                              .to = block == rank ? output.data() : nullptr,
                              .elements = elements,
                              .reduction = reduction}});
    }
    return made;
  }
};

TEST(DeviceBlocks, HaveTheBitsOfCpuTensorsForEveryOperationAndDtype) {
  const Machines machines{{2, 1, 2}};
  constexpr std::uint64_t kElements = 1003;
  for (int d = 0; d <= static_cast<int>(DType::Float8E5M2); ++d) {
    for (int o = 0; o <= static_cast<int>(Op::BitXor); ++o) {
      Reduction reduction{.dtype = static_cast<DType>(d), .op = static_cast<Op>(o)};
      if (!isDefined(reduction.op, reduction.dtype)) continue;
      if (reduction.op == Op::Sum && reduction.dtype == DType::Int32) reduction.divisor = 5;
      const double scale = reduction.op == Op::Sum && isFloat(reduction.dtype) ? 0.2 : 1.0;
      Cluster host(machines, 256 * kKiB, 16 * kKiB);
      DeviceCluster devices(machines, 256 * kKiB, 16 * kKiB, 1);
      const std::size_t world = devices.world();
      std::vector<Scattered> there(world);
      std::mt19937 random(static_cast<unsigned>(d));
      for (Scattered& one : there) {
        one.output.resize(kElements * bytesOf(reduction.dtype));
        one.input.resize(world * one.output.size());
        for (std::byte& byte : one.input)
          byte = static_cast<std::byte>(random() & 0x3F);  // finite and small, as floats
      }
      std::vector<Scattered> here = there;
      std::size_t finished = 0;
      for (std::size_t r = 0; r < world; ++r) {
        devices.ranks[r]->call(there[r].call(reduction, kElements, scale, r, world), 1);
        Call call = here[r].call(reduction, kElements, scale, r, world);
        call.done = [&](const Error&) { ++finished; };
        host.ranks[r]->onLoop([&] { host.ranks[r]->pipeline->submit(std::move(call), 1); });
      }
      ASSERT_TRUE(devices.drain());
      while (finished < world) ASSERT_TRUE(host.step(random));
      for (std::size_t r = 0; r < world; ++r)
        ASSERT_EQ(there[r].output, here[r].output) << name(reduction.dtype) << ", operation " << o << ", rank " << r;
    }
  }
}

constexpr std::size_t kStreams = 4;
constexpr std::size_t kCallers = kStreams;  // the index of the callers' stream

std::size_t gateOf(const SimulatedAccelerator::Word* word) {
  return reinterpret_cast<std::uintptr_t>(word) / sizeof(*word) % Gates::kGates;
}

struct Omission {
  const char* what;
  std::function<void(Settings&)> omit;
};

// A slice tells twice: that its bytes are out, and that the device is done with it.
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
    {"the gate of what the rails bring",
     [](Settings& s) { s.omitsGate = [](auto word) { return gateOf(word) == 1; }; }},
    {"that what is sent is out", [](Settings& s) { s.tellsEarly = [](auto time) { return time % 2 == 0; }; }},
    {"that the device is done with the slice",
     [](Settings& s) { s.tellsEarly = [](auto time) { return time % 2 == 1; }; }},
};

bool runs(unsigned seed, Pattern pattern, const Settings& settings) {
  DeviceCluster cluster({{2, 1, 1}}, 96 * kKiB, 32 * kKiB, seed, [&](int) { return settings; });
  std::vector<Half> calls;
  for (const std::uint64_t elements : {6'000, 4'005, 200, 2'000, 8'000, 9})
    calls.push_back({pattern, {elements}, pattern == Pattern::AllGather && elements % 2 == 0});
  BlocksProgram program(cluster, calls);
  program.makeAtRandom();
  const bool over = cluster.drain();
  const bool right = over && program.wrong() == 0;
  if (!over) cluster.giveUp();
  return right;
}

TEST(DeviceBlocks, WhateverIsLeftOutIsSeen) {
  for (const Pattern pattern : {Pattern::ReduceScatter, Pattern::AllGather}) {
    for (const Omission& omission : kOmissions) {
      Settings lacking;
      omission.omit(lacking);
      bool seen = false;
      for (unsigned seed = 0; seed < 60 && !seen; ++seed) {
        ASSERT_TRUE(runs(seed, pattern, {})) << "with everything, seed " << seed;
        seen = !runs(seed, pattern, lacking);
      }
      EXPECT_TRUE(seen) << "nobody missed " << omission.what << " of "
                        << (pattern == Pattern::AllGather ? "all-gathers" : "reduce-scatters");
    }
  }
}

}  // namespace
}  // namespace fairring::testing
