// Whole ranks under cost rows that make the planner take its rarer plans.
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "engine_ranks.h"

namespace fairring {
namespace {

using testing::Cluster;
using testing::inOrder;
using testing::kKiB;
using testing::Machines;
using testing::playToTheEnd;
using testing::Script;

// A message of so many seconds, in a network that is otherwise free or not.
std::vector<CostRow> rowsWith(double perMessage, double bytesPerSecond) {
  const CostRow memory{1e-6, 0, 1e10, 1e10};
  const CostRow network{1e-6, perMessage, bytesPerSecond, 1e10};
  return {memory, network, network};
}

class Plans : public ::testing::TestWithParam<Machines> {};

INSTANTIATE_TEST_SUITE_P(Engine, Plans,
                         ::testing::Values(Machines{{1, 1, 1, 1}}, Machines{{2, 2, 2}}, Machines{{3, 1, 2, 2}, true},
                                           Machines{{1, 1, 1, 1, 1}, false, 2}),
                         [](const auto& info) { return "Layout" + std::to_string(info.index); });

TEST_P(Plans, OfFewOwnersSumExactly) {
  std::set<int> shards;
  for (const double perMessage : {1e-5, 1e-4, 1e-2}) {
    Cluster cluster(GetParam(), 256 * kKiB, 16 * kKiB, {4 * kKiB, 8 * kKiB}, rowsWith(perMessage, 1e8));
    const auto world = static_cast<std::uint64_t>(cluster.world());
    const std::uint64_t slice = 16 * kKiB / sizeof(float);
    const Script script = inOrder(world, {0, 1, world + 1, slice - 1, slice + 1, 9 * slice + 17, 1, 12 * slice});
    for (const std::uint64_t elements : script.sizes) {
      shards.insert(cluster.planner.choose(elements, sizeof(float)).plan[1].shards);
    }
    std::mt19937 random(7);
    playToTheEnd(cluster, script, random);
    if (HasFatalFailure()) FAIL() << cluster.planner.topology().describe();
  }
  EXPECT_TRUE(shards.contains(1) || shards.contains(2)) << "a plan of few owners was meant to occur";
}

TEST_P(Plans, OfFewOwnersLetRanksWaitWhereTheyLikeWithLittleStaging) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    Cluster cluster(GetParam(), 512 * kKiB, 16 * kKiB, {4 * kKiB, random() % 2 * 8 * kKiB}, rowsWith(1e-2, 1e9));
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

}  // namespace
}  // namespace fairring
