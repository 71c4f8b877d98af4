// Whole ranks under cost rows that make the planner take its rarer plans.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "engine_ranks.h"

namespace fairring {
namespace {

using testing::Cluster;
using testing::inOrder;
using testing::kKiB;
using testing::Machines;
using testing::playToTheEnd;
using testing::rowsWith;

// In the order that docs/algorithms.md promises, for machines of one rank: groups of machines, then the groups.
std::vector<float> promised(std::vector<std::vector<float>> sums, std::size_t groupsOfMachines) {
  const auto add = [](std::vector<float>& sum, const std::vector<float>& more) {
    if (sum.empty()) {
      sum = more;
    } else {
      std::ranges::transform(sum, more, sum.begin(), std::plus<>());
    }
  };
  for (const std::size_t groups : {groupsOfMachines, std::size_t{1}}) {
    std::vector<std::vector<float>> ofGroups(groups);
    for (std::size_t group = 0; group < groups; ++group) {
      for (auto i = group * sums.size() / groups; i < (group + 1) * sums.size() / groups; ++i)
        add(ofGroups[group], sums[i]);
    }
    sums = std::move(ofGroups);
  }
  return sums.front();
}

std::vector<std::vector<float>> randomInputs(int ranks, std::uint64_t elements) {
  std::vector<std::vector<float>> inputs;
  for (int rank = 0; rank < ranks; ++rank) {
    std::mt19937 values(static_cast<unsigned>(rank));
    for (float& value : inputs.emplace_back(elements)) {
      value = std::uniform_real_distribution<float>(-1e3F, 1e3F)(values);
    }
  }
  return inputs;
}

// Values whose sum depends on the order of summation.
void sumTogether(Cluster& cluster, std::vector<std::vector<float>>& tensors, std::mt19937& random) {
  std::size_t finished = 0;
  for (std::size_t r = 0; r < tensors.size(); ++r) {
    testing::Rank& rank = *cluster.ranks[r];
    rank.onLoop([&] {
      rank.pipeline->submit({.operands = {{tensors[r].data(), tensors[r].size(), {.dtype = DType::Float32}}},
                             .signature = {},
                             .done = [&](const Error&) { ++finished; }},
                            1);
    });
  }
  while (finished < tensors.size()) ASSERT_TRUE(cluster.step(random));
}

TEST(GroupedRails, HaveTheSameBitsAsEveryOtherPlan) {
  struct Layout {
    int machines;
    std::size_t groups;
  };
  for (const auto& [machines, groups] : {Layout{8, 2}, {9, 3}, {11, 2}, {16, 4}}) {
    std::set<std::string> plans;
    for (const auto& rows : {rowsWith(0, 1e7), rowsWith(1e-5, 1e7), rowsWith(1e-3, 1e7), rowsWith(0, 1e12, 1)}) {
      for (const std::uint64_t elements : {40'011, 700, 5}) {
        Cluster cluster({std::vector<int>(static_cast<std::size_t>(machines), 1)}, 512 * kKiB, 32 * kKiB, {}, rows);
        plans.insert(describe(cluster.planner.choose(elements * sizeof(float)).plan));
        const std::vector<std::vector<float>> inputs = randomInputs(machines, elements);
        std::vector<std::vector<float>> tensors = inputs;
        std::mt19937 random(3);
        sumTogether(cluster, tensors, random);
        for (const auto& tensor : tensors) ASSERT_EQ(tensor, promised(inputs, groups)) << machines << " machines";
      }
    }
    const auto has = [&](const char* part) {
      return std::ranges::any_of(plans, [&](const std::string& plan) { return plan.find(part) != std::string::npos; });
    };
    EXPECT_TRUE(has("AR1") && has("AR2") && has("RS1 AG1"))
        << machines << " machines: " << ::testing::PrintToString(plans);
  }
}

TEST(GroupedRails, SumExactlyOnUnequalMachines) {
  for (const Machines& machines : {Machines{{1, 2, 1, 3, 1, 1, 2, 1}, true}, Machines{{2, 1, 1, 1, 3, 1, 1, 1, 2}}}) {
    for (const double perMessage : {1e-6, 1e-3}) {
      Cluster cluster(machines, 512 * kKiB, 16 * kKiB, {4 * kKiB, 8 * kKiB}, rowsWith(perMessage, 1e7));
      const auto world = static_cast<std::uint64_t>(cluster.world());
      std::mt19937 random(7);
      playToTheEnd(cluster, inOrder(world, {0, 1, world - 1, 4095, 4096, 4097, 20'017}), random);
      if (HasFatalFailure()) FAIL() << cluster.planner.topology().describe();
    }
  }
}

}  // namespace
}  // namespace fairring
