// Whole ranks whose sums cross between sites as bf16: bits, residuals, bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>

#include "engine_ranks.h"
#include "exchange/site_format.h"

namespace fairring {
namespace {

using testing::Cluster;
using testing::kKiB;
using testing::Machines;

using Tensors = std::vector<std::vector<float>>;  // of each rank

std::vector<CostRow> rowsWith(double latency, double perMessage, double bytesPerSecond) {
  const CostRow near{1e-6, 0, 1e10, 1e10};
  return {near, near, {latency, perMessage, bytesPerSecond, 1e10}};
}

// Cost rows with which the level of sites takes two steps, one, or has few owners.
const std::vector<std::vector<CostRow>> kPlans{rowsWith(0, 0, 1e6), rowsWith(1, 0, 1e12), rowsWith(0, 1, 1e12)};

float rounded(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  return __builtin_bit_cast(float, (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000U);
}

Tensors randomTensors(int ranks, std::uint64_t elements, unsigned seed = 0) {
  Tensors tensors;
  for (int rank = 0; rank < ranks; ++rank) {
    std::mt19937 random(static_cast<unsigned>(rank) + 100 * seed);
    for (float& value : tensors.emplace_back(elements)) {
      value = std::uniform_real_distribution<float>(-1e3F, 1e3F)(random);
    }
  }
  return tensors;
}

void sumTogether(Cluster& cluster, Tensors& tensors, Tensors& residuals, std::mt19937& random) {
  std::size_t finished = 0;
  for (std::size_t r = 0; r < tensors.size(); ++r) {
    testing::Rank& rank = *cluster.ranks[r];
    rank.onLoop([&] {
      rank.pipeline->submit({.operands = {{tensors[r].data(), tensors[r].size(), {.dtype = DType::Float32}}},
                             .siteFormat = residuals[r].empty() ? nullptr : siteFormat("bf16"),
                             .residual = residuals[r].data(),
                             .signature = {},
                             .done =
                                 [&](const Error& error) {
                                   EXPECT_FALSE(error) << error.text();
                                   ++finished;
                                 }},
                            1);
    });
  }
  while (finished < tensors.size()) ASSERT_TRUE(cluster.step(random)) << "a part without a place";
}

Tensors zerosFor(const Tensors& tensors) { return {tensors.size(), std::vector<float>(tensors.front().size(), 0.0F)}; }

const std::vector<Machines> kLayouts{{{1, 1}, false, 2},   {{2, 2, 2, 2}, false, 2}, {{1, 1, 1}, false, 3},
                                     {{2, 3, 1}, true, 2}, {{1, 2, 1, 1}, false, 3}, {{1, 1, 1, 1, 1}, true, 4}};

TEST(SiteCompression, GivesAllRanksTheSameBitsByEveryPlan) {
  for (const Machines& machines : kLayouts) {
    for (const std::uint64_t elements : {1, 3, 17, 5000, 60'011}) {
      std::set<std::vector<float>> results;
      std::set<std::string> plans;
      for (const auto& rows : kPlans) {
        Cluster cluster(machines, 512 * kKiB, 32 * kKiB, {4 * kKiB, 8 * kKiB}, rows);
        plans.insert(describe(cluster.planner.choose(elements * 4, 1).plan));
        Tensors tensors = randomTensors(cluster.world(), elements);
        Tensors residuals = zerosFor(tensors);
        std::mt19937 random(5);
        sumTogether(cluster, tensors, residuals, random);
        if (HasFatalFailure()) FAIL() << cluster.planner.topology().describe();
        results.insert(tensors.begin(), tensors.end());
      }
      EXPECT_EQ(results.size(), 1U) << elements << " elements, " << ::testing::PrintToString(plans);
      EXPECT_TRUE(elements < 5000 || plans.size() > 1);
    }
  }
}

TEST(SiteCompression, RoundsWhatEachSiteHasSummedAndTheirSum) {
  for (const auto& rows : kPlans) {
    Cluster cluster({{1, 1, 1}, false, 3}, 512 * kKiB, 32 * kKiB, {}, rows);
    const Tensors inputs = randomTensors(3, 20'000);
    Tensors tensors = inputs;
    Tensors residuals = zerosFor(tensors);
    std::mt19937 random(6);
    sumTogether(cluster, tensors, residuals, random);
    for (std::size_t i = 0; i < inputs[0].size(); ++i) {
      const float sum = rounded(inputs[0][i]) + rounded(inputs[1][i]) + rounded(inputs[2][i]);
      ASSERT_EQ(tensors[0][i], rounded(sum));
    }
  }
}

// Every input has come out, or is still in a residual, to within the error of fp32, after any number of calls; rounding
// without residuals would drift.
TEST(SiteCompression, LosesNothingForEver) {
  for (const Machines& machines : kLayouts) {
    for (const auto& rows : kPlans) {
      Cluster cluster(machines, 512 * kKiB, 32 * kKiB, {4 * kKiB, 8 * kKiB}, rows);
      constexpr std::uint64_t kElements = 9'001;
      Tensors residuals = zerosFor(randomTensors(cluster.world(), kElements));
      std::vector<double> in(kElements, 0.0);
      std::vector<double> out(kElements, 0.0);
      for (unsigned call = 0; call < 6; ++call) {
        Tensors tensors = randomTensors(cluster.world(), kElements, call);
        for (const auto& tensor : tensors) std::ranges::transform(in, tensor, in.begin(), std::plus<>());
        std::mt19937 random(call);
        sumTogether(cluster, tensors, residuals, random);
        if (HasFatalFailure()) FAIL() << cluster.planner.topology().describe();
        std::ranges::transform(out, tensors[0], out.begin(), std::plus<>());
      }
      for (const auto& lost : residuals) std::ranges::transform(out, lost, out.begin(), std::plus<>());
      for (std::uint64_t i = 0; i < kElements; ++i) ASSERT_NEAR(in[i], out[i], 0.1) << "element " << i;
    }
  }
}

TEST(SiteCompression, HalvesTheBytesBetweenSites) {
  const auto bytes = [](bool isCompressed) {
    Cluster cluster({{2, 2, 2, 2}, false, 2}, 512 * kKiB, 32 * kKiB);
    Tensors tensors = randomTensors(cluster.world(), 50'000);
    Tensors residuals = zerosFor(tensors);
    if (!isCompressed) residuals = Tensors(tensors.size());
    std::mt19937 random(8);
    sumTogether(cluster, tensors, residuals, random);
    std::uint64_t sum = 0;
    for (const auto& rank : cluster.ranks) sum += rank->rails->traffic().at(Topology::kSiteLevel).bytes;
    return sum;
  };
  EXPECT_EQ(2 * bytes(true), bytes(false));
}

TEST(SiteCompression, KnowsItsFormatsByName) {
  EXPECT_EQ(siteFormat("bf16")->name, "bf16");
  EXPECT_EQ(siteFormat("bf1"), nullptr);
}

TEST(SiteCompression, ChangesNothingWhereThereIsOneSite) {
  Cluster cluster({{1, 1}, false, 1}, 512 * kKiB, 32 * kKiB);
  const Tensors inputs = randomTensors(2, 1000);
  Tensors tensors = inputs;
  Tensors residuals(2, std::vector<float>(1000, 0.5F));
  std::mt19937 random(9);
  sumTogether(cluster, tensors, residuals, random);
  for (std::size_t i = 0; i < 1000; ++i) EXPECT_EQ(tensors[1][i], inputs[0][i] + inputs[1][i]);
  EXPECT_EQ(residuals, Tensors(2, std::vector<float>(1000, 0.5F)));
}

}  // namespace
}  // namespace fairring
