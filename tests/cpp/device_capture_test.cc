// Calls that a graph captures: the chain of a device with rails of its own, in one stream and in staging of the
// graph's.
#include <gtest/gtest.h>

#include <vector>

#include "device_ranks.h"

namespace fairring::testing {
namespace {

constexpr std::uint64_t kSlice = 32 * kKiB;

DeviceCluster clusterOf(const Machines& machines, unsigned seed) {
  return {machines,
          3 * kSlice,
          kSlice,
          seed,
          [](int) { return DeviceRank::Settings{}; },
          builtInRows("tcp"),
          WhoseRails::TheDevices};
}

// As a graph runs it: everything enqueued here is what a launch enqueues. Returns the graph's staging.
std::vector<std::byte> capture(DeviceRank& rank, std::vector<float>& tensor) {
  std::vector<std::byte> memory;
  const Call call{.operands = {{tensor.data(), tensor.size(), {}}}, .signature = {}, .done = nullptr};
  const DeviceChain::Tensors tensors{call.pattern, Packing::of(call), call.scale};
  rank.chain->capture(tensors, rank.device->callers(), [&](std::uint64_t bytes) {
    memory.resize(bytes);
    return memory.data();
  });
  return memory;
}

TEST(DeviceCaptures, SumAmongCallsThatAreNotCaptured) {
  for (const Machines& machines : {Machines{{1, 1}}, Machines{{2, 2}}, Machines{{2, 1, 1}}}) {
    for (unsigned seed = 0; seed < 10; ++seed) {
      DeviceCluster cluster = clusterOf(machines, seed);
      const auto sum = static_cast<float>(cluster.world());
      const std::uint64_t elements = 3 * kSlice / sizeof(float) + 7;
      std::vector<std::vector<float>> tensors(3 * cluster.world(), std::vector<float>(elements, 1.0F));
      std::vector<std::vector<std::byte>> graphs;
      for (std::size_t r = 0; r < cluster.world(); ++r) {
        DeviceRank& rank = *cluster.ranks[r];
        const auto call = [&](std::vector<float>& tensor, std::uint64_t signature) {
          rank.call({.data = tensor.data(), .elements = elements, .reduction = {}}, signature);
        };
        call(tensors[3 * r], 1);
        graphs.push_back(capture(rank, tensors[3 * r + 1]));
        call(tensors[3 * r + 2], 2);
      }
      ASSERT_TRUE(cluster.drain()) << "seed " << seed;
      for (const auto& tensor : tensors) ASSERT_EQ(tensor, std::vector<float>(elements, sum)) << "seed " << seed;
      for (const auto& rank : cluster.ranks) EXPECT_EQ(rank->ended.size(), 2U) << "the loop hears of no captured call";
      for (const auto& graph : graphs) EXPECT_LT(graph.size(), 3 * kSlice) << "slices have the staging in turn";
    }
  }
}

TEST(DeviceCaptures, ACallOfNoBytesTakesNothing) {
  DeviceCluster cluster = clusterOf({{1, 1}}, 1);
  std::vector<float> none;
  EXPECT_TRUE(capture(*cluster.ranks[0], none).empty());
  EXPECT_TRUE(cluster.ranks[0]->device->idle());
}

}  // namespace
}  // namespace fairring::testing
