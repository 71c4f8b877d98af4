// The bits of collectives on every layout. The simulation plays calls of every pattern among one another
// (tests/simulation).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "engine_ranks.h"

namespace fairring {
namespace {

using testing::Cluster;
using testing::kKiB;
using testing::Machines;

const Machines kLayouts[] = {{{1}},
                             {{2}},
                             {{4}},
                             {{2, 2}},
                             {{3, 1}},
                             {{1, 1, 1}},
                             {{2, 2, 2}},
                             {{1, 3}, true},
                             {{2, 1}, true},
                             {{3, 2, 1}},
                             {{2, 2, 2, 2}, false, 2},
                             {{2, 1, 1}, true, 2},
                             {{1, 2, 3}, false, 3},
                             {{1, 1, 1, 1, 1, 1, 1, 1}},
                             {{1, 1, 1, 1}, false, 1, true},
                             {{2, 1, 2, 1}, true, 1, true},
                             {{1, 2, 1, 1, 1, 2, 1}, false, 1, true},
                             {{1, 1, 1, 1, 1, 1, 1, 1}, false, 1, true},
                             {{1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1}, false, 1, true}};

// Sums of floats depend on their order.
TEST(Collectives, AReduceScatterHasTheBitsOfTheAllReduce) {
  for (const Machines& machines : kLayouts) {
    Cluster cluster(machines, 512 * kKiB, 16 * kKiB, {4 * kKiB, 8 * kKiB});
    const auto world = static_cast<std::size_t>(cluster.world());
    constexpr std::size_t kElements = 3'000;
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<std::vector<float>> inputs(world, std::vector<float>(world * kElements));
    for (auto& input : inputs) std::ranges::generate(input, [&] { return normal(random); });
    std::vector<std::vector<float>> sums = inputs;
    std::vector<std::vector<float>> scattered(world, std::vector<float>(kElements));
    std::size_t done = 0;
    const auto ended = [&done](const Error&) { ++done; };
    for (std::size_t rank = 0; rank < world; ++rank) {
      BlockRows blocks;
      for (std::size_t block = 0; block < world; ++block) {
        blocks.push_back({{.from = inputs[rank].data() + block * kElements,
                           .to = block == rank ? scattered[rank].data() : nullptr,
                           .elements = kElements,
                           .reduction = {.dtype = DType::Float32}}});
      }
      cluster.ranks[rank]->onLoop([&] {
        Pipeline& pipeline = *cluster.ranks[rank]->pipeline;
        pipeline.submit({.operands = {{sums[rank].data(), sums[rank].size(), {.dtype = DType::Float32}}},
                         .signature = {},
                         .done = ended},
                        1);
        pipeline.submit(
            {.pattern = Pattern::ReduceScatter, .blocks = std::move(blocks), .signature = {}, .done = ended}, 2);
      });
    }
    for (int step = 0; done < 2 * world; ++step) {
      ASSERT_LT(step, 2'000'000) << "stalled";
      ASSERT_TRUE(cluster.step(random));
    }
    for (std::size_t rank = 0; rank < world; ++rank) {
      EXPECT_EQ(std::memcmp(scattered[rank].data(), sums[rank].data() + rank * kElements, kElements * sizeof(float)), 0)
          << cluster.planner.topology().describe() << ", rank " << rank;
    }
  }
}

}  // namespace
}  // namespace fairring
