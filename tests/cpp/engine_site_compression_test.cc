// Whole ranks whose sums cross between sites in each format: bits, residuals, bytes.
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

// Cost rows with which the level of sites takes two steps, or one.
const std::vector<std::vector<CostRow>> kPlans{rowsWith(0, 0, 1e6), rowsWith(1, 0, 1e12)};

const std::vector<const SiteFormat*> kFormats{siteFormat("bf16"), siteFormat("int8"), siteFormat("int4")};

std::vector<float> rounded(const SiteFormat& format, std::vector<float> values) {
  std::vector<std::byte> encoded(format.bytes(values.size()));
  format.encode(values.data(), encoded.data(), nullptr, values.size());
  format.decode(encoded.data(), values.data(), values.size());
  return values;
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

void sumTogether(Cluster& cluster, const SiteFormat* format, Tensors& tensors, Tensors& residuals,
                 std::mt19937& random) {
  std::size_t finished = 0;
  for (std::size_t r = 0; r < tensors.size(); ++r) {
    testing::Rank& rank = *cluster.ranks[r];
    rank.onLoop([&] {
      rank.pipeline->submit({.operands = {{tensors[r].data(), tensors[r].size(), {.dtype = DType::Float32}}},
                             .siteFormat = format,
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

// The results that are seen on any rank, by any plan.
std::set<std::vector<float>> resultsOf(const SiteFormat& format, const Machines& machines, std::uint64_t elements) {
  std::set<std::vector<float>> results;
  std::set<std::string> plans;
  for (const auto& rows : kPlans) {
    Cluster cluster(machines, 512 * kKiB, 32 * kKiB, {4 * kKiB, 8 * kKiB}, rows);
    plans.insert(describe(cluster.planner.choose(elements * 4).plan));
    Tensors tensors = randomTensors(cluster.world(), elements);
    Tensors residuals = zerosFor(tensors);
    std::mt19937 random(5);
    sumTogether(cluster, &format, tensors, residuals, random);
    results.insert(tensors.begin(), tensors.end());
  }
  EXPECT_TRUE(elements < 5000 || plans.size() > 1);
  return results;
}

TEST(SiteCompression, GivesAllRanksTheSameBitsByEveryPlan) {
  for (const SiteFormat* format : kFormats) {
    for (const Machines& machines : kLayouts) {
      for (const std::uint64_t elements : {1, 17, 5000, 20'011}) {
        EXPECT_EQ(resultsOf(*format, machines, elements).size(), 1U) << format->name << ", " << elements;
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(SiteCompression, RoundsWhatEachSiteHasSummedAndTheirSum) {
  for (const SiteFormat* format : kFormats) {
    for (const auto& rows : kPlans) {
      Cluster cluster({{1, 1, 1}, false, 3}, 512 * kKiB, 32 * kKiB, {}, rows);
      const Tensors inputs = randomTensors(3, 20'001);
      Tensors tensors = inputs;
      Tensors residuals = zerosFor(tensors);
      std::mt19937 random(6);
      sumTogether(cluster, format, tensors, residuals, random);
      std::vector<float> sum = rounded(*format, inputs[0]);
      for (const std::size_t site : {1, 2})
        std::ranges::transform(sum, rounded(*format, inputs[site]), sum.begin(), std::plus<>());
      ASSERT_EQ(tensors[0], rounded(*format, sum)) << format->name;
    }
  }
}

// A slice has a block at least, however small FAIRRING_SLICE_SIZE is.
TEST(SiteCompression, CutsBetweenBlocksWhereThereIsLittleMemory) {
  for (const SiteFormat* format : kFormats) {
    for (const Machines& machines : kLayouts) {
      Cluster cluster(machines, 16 * kKiB, 64);
      Tensors tensors = randomTensors(cluster.world(), 1'301);
      Tensors residuals = zerosFor(tensors);
      std::mt19937 random(7);
      sumTogether(cluster, format, tensors, residuals, random);
      EXPECT_EQ(resultsOf(*format, machines, 1'301), std::set({tensors[0]})) << format->name;
    }
  }
}

// Every input has come out, or is still in a residual, to within the error of fp32, after any number of calls; rounding
// without residuals would drift.
TEST(SiteCompression, LosesNothingForEver) {
  for (const SiteFormat* format : kFormats) {
    for (const Machines& machines : kLayouts) {
      for (const auto& rows : kPlans) {
        Cluster cluster(machines, 512 * kKiB, 32 * kKiB, {4 * kKiB, 8 * kKiB}, rows);
        constexpr std::uint64_t kElements = 3'001;
        Tensors residuals = zerosFor(randomTensors(cluster.world(), kElements));
        std::vector<double> in(kElements, 0.0);
        std::vector<double> out(kElements, 0.0);
        for (unsigned call = 0; call < 4; ++call) {
          Tensors tensors = randomTensors(cluster.world(), kElements, call);
          for (const auto& tensor : tensors) std::ranges::transform(in, tensor, in.begin(), std::plus<>());
          std::mt19937 random(call);
          sumTogether(cluster, format, tensors, residuals, random);
          if (HasFatalFailure()) FAIL() << cluster.planner.topology().describe();
          std::ranges::transform(out, tensors[0], out.begin(), std::plus<>());
        }
        for (const auto& lost : residuals) std::ranges::transform(out, lost, out.begin(), std::plus<>());
        for (std::uint64_t i = 0; i < kElements; ++i) ASSERT_NEAR(in[i], out[i], 0.1) << format->name << ", " << i;
      }
    }
  }
}

TEST(SiteCompression, SendsTheBytesOfTheFormatBetweenSites) {
  const auto bytes = [](const SiteFormat* format) {
    Cluster cluster({{2, 2, 2, 2}, false, 2}, 512 * kKiB, 32 * kKiB);
    Tensors tensors = randomTensors(cluster.world(), 50'000);
    Tensors residuals = zerosFor(tensors);
    std::mt19937 random(8);
    sumTogether(cluster, format, tensors, residuals, random);
    std::uint64_t sum = 0;
    for (const auto& rank : cluster.ranks) sum += rank->rails->traffic().at(Topology::kSiteLevel).bytes;
    return static_cast<double>(sum);
  };
  const double whole = bytes(nullptr);
  EXPECT_EQ(whole / bytes(siteFormat("bf16")), 2);
  EXPECT_GT(whole / bytes(siteFormat("int8")), 3.9);
  EXPECT_GT(whole / bytes(siteFormat("int4")), 7.5);
}

TEST(SiteCompression, KnowsItsFormatsByName) {
  for (const SiteFormat* format : kFormats) EXPECT_EQ(siteFormat(format->name), format);
  EXPECT_EQ(siteFormat("bf1"), nullptr);
}

TEST(SiteCompression, ChangesNothingWhereThereIsOneSite) {
  Cluster cluster({{1, 1}, false, 1}, 512 * kKiB, 32 * kKiB);
  const Tensors inputs = randomTensors(2, 1000);
  Tensors tensors = inputs;
  Tensors residuals(2, std::vector<float>(1000, 0.5F));
  std::mt19937 random(9);
  sumTogether(cluster, siteFormat("int8"), tensors, residuals, random);
  for (std::size_t i = 0; i < 1000; ++i) EXPECT_EQ(tensors[1][i], inputs[0][i] + inputs[1][i]);
  EXPECT_EQ(residuals, Tensors(2, std::vector<float>(1000, 0.5F)));
}

}  // namespace
}  // namespace fairring
