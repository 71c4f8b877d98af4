// Reduce-scatters and all-gathers by chains on simulated devices, among one another, under any schedule; compared with
// sums made another way.
#include <gtest/gtest.h>

#include <array>
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

TEST(DeviceBlocks, AreExactForEverySizeAndLayout) {
  for (const Machines& machines : kLayouts) {
    DeviceCluster cluster(machines, 256 * kKiB, 32 * kKiB, 7);
    std::vector<DeviceProgram::Made> calls;
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

TEST(DeviceBlocks, AreExactInEveryScheduleWithLittleStagingAndFewQueues) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const Machines& machines = kLayouts[random() % std::size(kLayouts)];
    Settings settings;
    settings.streams = 1 + random() % 4;
    settings.connections = std::array<std::size_t, 3>{1, 2, 32}[random() % 3];
    DeviceCluster cluster(machines, 256 * kKiB, 64 * kKiB, seed, [&](int) { return settings; });
    std::vector<DeviceProgram::Made> calls;
    for (std::size_t c = 2 + random() % 6; c > 0; --c) {
      DeviceProgram::Made& call = calls.emplace_back(random() % 2 == 0 ? Pattern::ReduceScatter : Pattern::AllGather);
      for (std::size_t t = 1 + random() % 3; t > 0; --t)
        call.elements.push_back(random() % (random() % 2 == 0 ? 64 : 12'000));
      call.inPlace = call.pattern == Pattern::AllGather && random() % 2 == 0;
    }
    DeviceProgram program(cluster, calls);
    program.makeAtRandom();
    ASSERT_TRUE(cluster.drain()) << "stalled: seed " << seed << ", " << cluster.planner.topology().describe();
    ASSERT_EQ(program.wrong(), 0U) << "seed " << seed << ", " << cluster.planner.topology().describe();
  }
}

}  // namespace
}  // namespace fairring::testing
