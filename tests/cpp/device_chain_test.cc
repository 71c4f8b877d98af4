// The results of chains on simulated devices, of every pattern that they have, among one another and under any
// schedule; compared with sums made another way.
#include "device/device_chain.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <set>
#include <string>

#include "device_ranks.h"

namespace fairring::testing {
namespace {

using Made = DeviceProgram::Made;

const Machines kLayouts[] = {
    {{1, 1}},
    {{2, 2}},
    {{2, 2}, true},
    {{1, 1, 1}},
    {{3, 1}},
    {{1, 3}, true},
    {{2, 2, 2}, true},
    {{3, 3}},
    {{1, 2}},
    {{3, 2, 1}},
    {{2, 2}, false, 2},
    {{1, 1, 1, 2}, false, 2},
    {{2, 1, 2, 1}, true, 1, true},
    {{1, 1, 1, 1, 1, 1, 1, 1}, false, 1, true},
};

TEST(DeviceChains, AreExactForEverySizeAndLayout) {
  for (const Machines& machines : kLayouts) {
    DeviceCluster cluster(machines, 256 * kKiB, 32 * kKiB, 7);
    const std::uint64_t world = cluster.world();
    const std::uint64_t slice = 32 * kKiB / sizeof(float);
    std::vector<Made> calls;
    for (const std::uint64_t elements :
         {std::uint64_t{0}, std::uint64_t{1}, world - 1, world, world + 1, slice - 1, slice, slice + 1, 5 * slice + 17})
      calls.push_back({.elements = {elements}});
    for (const std::uint64_t elements : {0, 1, 15, 16, 17, 1000, 9'000}) {
      calls.push_back({Pattern::ReduceScatter, {elements}});
      calls.push_back({Pattern::AllGather, {elements}, elements % 2 == 0});
    }
    DeviceProgram program(cluster, calls);
    program.makeAll();
    ASSERT_TRUE(cluster.drain()) << "stalled: " << cluster.planner.topology().describe();
    ASSERT_EQ(program.wrong(), 0U) << cluster.planner.topology().describe();
    for (const auto& rank : cluster.ranks)
      EXPECT_EQ(rank->ended.size(), calls.size()) << "the loop knows of each call's end";
  }
}

Made drawnCall(std::mt19937& random) {
  Made call{std::array{Pattern::AllReduce, Pattern::ReduceScatter, Pattern::AllGather}[random() % 3], {}};
  const bool isWhole = call.pattern == Pattern::AllReduce;
  for (std::size_t t = isWhole ? 1 : 1 + random() % 3; t > 0; --t)
    call.elements.push_back(random() % (random() % 2 == 0 ? 64 : isWhole ? 60'000 : 12'000));
  call.inPlace = call.pattern == Pattern::AllGather && random() % 2 == 0;
  return call;
}

TEST(DeviceChains, AreExactInEveryScheduleWithLittleStagingAndFewQueues) {
  for (unsigned seed = 0; seed < 120; ++seed) {
    std::mt19937 random(seed);
    const Machines& machines = kLayouts[random() % std::size(kLayouts)];
    DeviceRank::Settings settings;
    settings.streams = 1 + random() % 4;
    settings.connections = std::array<std::size_t, 3>{1, 2, 32}[random() % 3];
    DeviceCluster cluster(machines, 256 * kKiB, 64 * kKiB, seed, [&](int) { return settings; });
    std::vector<Made> calls;
    for (std::size_t c = 2 + random() % 6; c > 0; --c) calls.push_back(drawnCall(random));
    DeviceProgram program(cluster, calls);
    program.makeAtRandom();
    ASSERT_TRUE(cluster.drain()) << "stalled: seed " << seed << ", " << cluster.planner.topology().describe();
    ASSERT_EQ(program.wrong(), 0U) << "seed " << seed << ", " << cluster.planner.topology().describe();
  }
}

TEST(DeviceChains, TakesEveryKindOfPlan) {
  std::set<std::string> plans;
  const auto tryRows = [&](const Machines& machines, const std::vector<CostRow>& rows) {
    for (const std::uint64_t elements : {40'011, 700, 5}) {
      DeviceCluster cluster(machines, 512 * kKiB, 32 * kKiB, 3, [](int) { return DeviceRank::Settings{}; }, rows);
      plans.insert(describe(cluster.planner.choose(elements * sizeof(float)).plan));
      DeviceProgram program(cluster, {elements, 17, elements});
      program.makeAll();
      EXPECT_TRUE(cluster.drain()) << "stalled";
      EXPECT_EQ(program.wrong(), 0U) << cluster.planner.topology().describe();
    }
  };
  for (const auto& rows : {rowsWith(0, 1e7), rowsWith(1e-5, 1e7), rowsWith(1e-3, 1e7), rowsWith(0, 1e12, 1)}) {
    tryRows({std::vector<int>(8, 1)}, rows);
    tryRows({{1, 2, 1, 1, 1, 1, 1, 1, 2}}, rows);
    tryRows({{3, 1, 2, 2}, true}, rows);
    tryRows({{1, 1, 1, 1, 1}, false, 2}, rows);
  }
  for (const char* part : {"AR1", "AR2", "RS1 AG1", "RS2 AG2"}) {
    EXPECT_TRUE(std::ranges::any_of(plans, [&](const auto& plan) { return plan.find(part) != std::string::npos; }))
        << part << " was meant to occur in " << ::testing::PrintToString(plans);
  }
}

// The same call on CPU tensors and on simulated devices.
struct Tensor {
  Reduction reduction;
  std::uint64_t elements;
};
struct Case {
  std::vector<Tensor> tensors;
  double scale = 1.0;
};
using Memory = std::vector<std::vector<std::byte>>;  // of a rank's tensors

Memory randomInputs(const Case& what, std::size_t rank) {
  Memory inputs;
  std::mt19937 random(static_cast<unsigned>(rank));
  for (const Tensor& tensor : what.tensors) {
    std::vector<std::byte>& bytes = inputs.emplace_back(tensor.elements * bytesOf(tensor.reduction.dtype));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0x3F);  // finite and small, as a float
  }
  return inputs;
}

std::vector<Operand> operandsOf(const Case& what, Memory& memory) {
  std::vector<Operand> operands;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    operands.push_back({memory[i].data(), what.tensors[i].elements, what.tensors[i].reduction});
  }
  return operands;
}

std::vector<Memory> onTheCpu(const Machines& machines, const Case& what, std::vector<Memory> memories) {
  Cluster cluster(machines, 256 * kKiB, 16 * kKiB);
  std::size_t finished = 0;
  for (std::size_t r = 0; r < memories.size(); ++r) {
    Rank& rank = *cluster.ranks[r];
    rank.onLoop([&] {
      rank.pipeline->submit({.operands = operandsOf(what, memories[r]),
                             .scale = what.scale,
                             .signature = {},
                             .done = [&](const Error&) { ++finished; }},
                            1);
    });
  }
  std::mt19937 random(1);
  while (finished < memories.size()) EXPECT_TRUE(cluster.step(random));
  return memories;
}

std::vector<Memory> onDevices(const Machines& machines, const Case& what, std::vector<Memory> memories, unsigned seed) {
  DeviceCluster cluster(machines, 256 * kKiB, 16 * kKiB, seed);
  for (std::size_t r = 0; r < memories.size(); ++r) {
    cluster.ranks[r]->call(operandsOf(what, memories[r]), what.scale, 1);
  }
  EXPECT_TRUE(cluster.drain());
  return memories;
}

std::vector<Memory> inputsOf(const Case& what, std::size_t ranks) {
  std::vector<Memory> inputs;
  for (std::size_t r = 0; r < ranks; ++r) inputs.push_back(randomInputs(what, r));
  return inputs;
}

TEST(DeviceChains, HasTheBitsOfCpuTensorsForEveryOperationAndDtype) {
  const Machines machines{{2, 1, 2}};
  for (int d = 0; d <= static_cast<int>(DType::Float8E5M2); ++d) {
    for (int o = 0; o <= static_cast<int>(Op::BitXor); ++o) {
      Reduction reduction{.dtype = static_cast<DType>(d), .op = static_cast<Op>(o)};
      if (!isDefined(reduction.op, reduction.dtype)) continue;
      if (reduction.op == Op::Sum && reduction.dtype == DType::Int32) reduction.divisor = 5;
      const bool scaled = reduction.op == Op::Sum && isFloat(reduction.dtype);
      const Case what{{{reduction, 5003}}, scaled ? 0.2 : 1.0};
      const auto inputs = inputsOf(what, 5);
      ASSERT_EQ(onDevices(machines, what, inputs, 1), onTheCpu(machines, what, inputs))
          << name(reduction.dtype) << ", operation " << o;
    }
  }
}

TEST(DeviceChains, ManyTensorsOfAnyDtypesShareSlicesWithTheBitsOfCpuTensors) {
  constexpr DType kDTypes[] = {DType::Float32, DType::BFloat16, DType::Float64, DType::UInt8,
                               DType::Int64,   DType::Float16,  DType::Bool,    DType::Float8E4M3};
  for (unsigned seed = 0; seed < std::size(kLayouts); ++seed) {
    std::mt19937 random(seed);
    const Machines machines = kLayouts[seed];
    Case what{.tensors = {}, .scale = 0.5};
    for (int i = 0; i < 40; ++i) {
      Reduction reduction{.dtype = kDTypes[random() % std::size(kDTypes)]};
      if (!isFloat(reduction.dtype) && reduction.dtype != DType::Bool) reduction.divisor = 3;
      what.tensors.push_back({reduction, random() % (i == 7 ? 40'000 : 600)});
    }
    const auto inputs = inputsOf(what, placesOf(machines).size());
    ASSERT_EQ(onDevices(machines, what, inputs, seed), onTheCpu(machines, what, inputs)) << "seed " << seed;
  }
}

TEST(DeviceChains, DifferentCallsAreAMismatchNotAWrongSum) {
  DeviceCluster cluster({{1, 1}}, 256 * kKiB, 64 * kKiB, 5);
  std::vector<float> memory(400, 1.0F);
  cluster.ranks[0]->call({.data = memory.data(), .elements = 100, .reduction = {}}, 1);
  cluster.ranks[1]->call({.data = memory.data() + 200, .elements = 200, .reduction = {}}, 2);
  const auto noticed = [&] { return cluster.ranks[0]->differs.contains(1) || cluster.ranks[1]->differs.contains(0); };
  for (int step = 0; step < 100'000 && !noticed(); ++step) cluster.step();
  EXPECT_TRUE(noticed());
  cluster.giveUp();
}

}  // namespace
}  // namespace fairring::testing
