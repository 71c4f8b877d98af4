// Sparse calls by whole ranks: every rank has some rows, and all get the sum of each row that any rank has.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>

#include "engine/sparse_call.h"
#include "engine_ranks.h"

namespace fairring {
namespace {

using testing::Cluster;
using testing::kKiB;
using testing::Machines;

using Rows = std::map<std::uint64_t, std::vector<float>>;

struct Shape {
  std::uint64_t rows;
  std::uint64_t elements;  // of a row
};

Rows rowsOf(const std::set<std::uint64_t>& keys, std::uint64_t elements, std::mt19937& random) {
  Rows rows;
  for (const std::uint64_t key : keys) {
    std::vector<float>& row = rows[key];
    for (std::uint64_t i = 0; i < elements; ++i) row.push_back(static_cast<float>(random() % 64) - 31.0F);
  }
  return rows;
}

Rows sumOf(const std::vector<Rows>& all) {
  Rows sums;
  for (const Rows& rows : all) {
    for (const auto& [key, row] : rows) {
      std::vector<float>& sum = sums.try_emplace(key, row.size(), 0.0F).first->second;
      std::ranges::transform(sum, row, sum.begin(), std::plus<>());
    }
  }
  return sums;
}

struct SparseTensor {  // of one rank
  std::vector<std::uint64_t> ownKeys;
  std::vector<float> values;
  std::vector<std::uint64_t> keys;
  std::vector<float> sums;
  std::optional<std::string> ended = std::nullopt;  // with that error

  Rows rows(std::uint64_t elements) const {
    Rows rows;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto begin = sums.begin() + static_cast<std::ptrdiff_t>(i * elements);
      rows[keys[i]] = {begin, begin + static_cast<std::ptrdiff_t>(elements)};
    }
    return rows;
  }
};

void makeCall(Cluster& cluster, std::size_t self, const Rows& rows, const Shape& shape, SparseTensor& tensor,
              Error refused = {}) {
  SparseOperand operand;
  operand.keysBelow = shape.rows;
  operand.rowElements = shape.elements;
  for (const auto& [key, row] : rows) {
    tensor.ownKeys.push_back(key);
    tensor.values.insert(tensor.values.end(), row.begin(), row.end());
  }
  operand.keys = tensor.ownKeys;
  operand.values = reinterpret_cast<const std::byte*>(tensor.values.data());
  if (!refused) {
    operand.result = [&tensor, elements = shape.elements](const std::vector<std::uint64_t>& keys) {
      tensor.keys = keys;
      tensor.sums.assign(keys.size() * elements, -1e9F);
      return reinterpret_cast<std::byte*>(tensor.sums.data());
    };
  }
  testing::Rank& rank = *cluster.ranks[self];
  rank.onLoop([&] {
    rank.pipeline->submit(
        {.operands = {},
         .parts = std::make_shared<SparseCall>(std::move(operand), static_cast<int>(self), cluster.world()),
         .signature = {"sparse"},
         .refused = std::move(refused),
         .done = [&tensor](const Error& error) { tensor.ended = error ? error.text() : ""; }},
        1);
  });
}

bool allEnded(const std::vector<SparseTensor>& tensors) {
  return std::ranges::all_of(tensors, [](const SparseTensor& tensor) { return tensor.ended.has_value(); });
}

void playToTheEnd(Cluster& cluster, const std::vector<SparseTensor>& tensors, std::mt19937& random) {
  for (int step = 0; !allEnded(tensors); ++step) {
    ASSERT_LT(step, 2'000'000) << "stalled";
    ASSERT_TRUE(cluster.step(random)) << "a part without a place";
    for (const auto& rank : cluster.ranks) ASSERT_TRUE(rank->errors.empty()) << rank->errors.front();
  }
}

void expectSums(Cluster& cluster, const std::vector<Rows>& inputs, const Shape& shape, std::mt19937& random) {
  std::vector<SparseTensor> tensors(inputs.size());
  for (std::size_t r = 0; r < inputs.size(); ++r) makeCall(cluster, r, inputs[r], shape, tensors[r]);
  playToTheEnd(cluster, tensors, random);
  const Rows sums = sumOf(inputs);
  for (std::size_t r = 0; r < tensors.size(); ++r) {
    ASSERT_EQ(tensors[r].ended, "");
    ASSERT_EQ(tensors[r].rows(shape.elements), sums) << "rank " << r;
  }
}

std::set<std::uint64_t> some(std::uint64_t count, std::uint64_t below, std::mt19937& random) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t i = 0; i < count; ++i) keys.insert(random() % below);
  return keys;
}

std::set<std::uint64_t> all(std::uint64_t below) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t key = 0; key < below; ++key) keys.insert(key);
  return keys;
}

class Sparse : public ::testing::TestWithParam<Machines> {
 protected:
  Cluster cluster_{GetParam(), 256 * kKiB, 64 * kKiB, {4 * kKiB, 8 * kKiB}};
  std::mt19937 random_{7};
  std::size_t world() const { return static_cast<std::size_t>(cluster_.world()); }
};

INSTANTIATE_TEST_SUITE_P(Engine, Sparse,
                         ::testing::Values(Machines{{1}}, Machines{{3}}, Machines{{1, 1}}, Machines{{2, 2}},
                                           Machines{{1, 1, 1, 1}}, Machines{{2, 2, 2}}, Machines{{3, 1, 2, 2}, true},
                                           Machines{{1, 1, 1, 1, 1}, false, 2}, Machines{{2, 2, 2, 2}, true, 2},
                                           Machines{{1, 3, 1, 1, 2, 1}, true, 4}, Machines{{1, 1, 1, 2, 1, 1, 1, 1, 1}},
                                           Machines{{2, 1, 2, 1}, true, 1, true},
                                           Machines{{1, 1, 1, 2, 1, 1, 1}, false, 1, true},
                                           Machines{{1, 1, 1, 1, 1, 1, 1, 1}, false, 1, true}),
                         [](const auto& info) { return "Layout" + std::to_string(info.index); });

TEST_P(Sparse, RowsAreSummedWhoeverHasThem) {
  for (const Shape shape : {Shape{1000, 1}, {1000, 3}, {300, 64}, {40, 1000}, {1ULL << 40, 7}}) {
    for (const std::uint64_t count : {1, 10, 200}) {
      std::vector<Rows> inputs;
      for (std::size_t r = 0; r < world(); ++r)
        inputs.push_back(rowsOf(some(random_() % (count + 1), shape.rows, random_), shape.elements, random_));
      expectSums(cluster_, inputs, shape, random_);
      if (HasFatalFailure()) FAIL() << count << " of " << shape.rows << " rows of " << shape.elements;
    }
  }
}

TEST_P(Sparse, SomeRanksMayHaveMoreKeysThanTravelWithTheCounts) {
  for (const Shape shape : {Shape{1ULL << 40, 1}, {1'000'000, 2}}) {
    std::vector<Rows> inputs;
    for (std::size_t r = 0; r < world(); ++r)
      inputs.push_back(rowsOf(some(r % 2 == 0 ? 1500 : 5, shape.rows, random_), shape.elements, random_));
    expectSums(cluster_, inputs, shape, random_);
    if (HasFatalFailure()) FAIL() << "of " << shape.rows << " rows";
  }
}

TEST_P(Sparse, SumsAreTheSameOnBothSidesOfWhereTheKeysFormChanges) {
  std::set<KeyForm> forms;
  for (const Shape shape : {Shape{4000, 1}, {4000, 4}, {500, 16}}) {
    for (const std::uint64_t percent : {1, 3, 10, 30, 60, 100}) {
      std::vector<Rows> inputs;
      std::vector<std::uint64_t> counts;
      for (std::size_t r = 0; r < world(); ++r) {
        const auto keys = percent == 100 ? all(shape.rows) : some(shape.rows * percent / 100, shape.rows, random_);
        inputs.push_back(rowsOf(keys, shape.elements, random_));
        counts.push_back(keys.size());
      }
      forms.insert(cluster_.planner.keyForm({shape.rows, shape.elements * sizeof(float)}, counts));
      expectSums(cluster_, inputs, shape, random_);
      if (HasFatalFailure()) FAIL() << percent << " % of " << shape.rows << " rows of " << shape.elements;
    }
  }
  EXPECT_EQ(forms.contains(KeyForm::BitsOfAll), world() > 1);
  EXPECT_TRUE(forms.contains(KeyForm::Lists));
}

TEST_P(Sparse, RanksMayHaveAllRowsOrTheSameOrNone) {
  const Shape shape{120, 50};
  const auto expect = [&](const auto& keysOf) {
    std::vector<Rows> inputs;
    for (std::size_t r = 0; r < world(); ++r) inputs.push_back(rowsOf(keysOf(r), shape.elements, random_));
    expectSums(cluster_, inputs, shape, random_);
  };
  expect([&](std::size_t) { return all(shape.rows); });
  expect([&](std::size_t) { return std::set<std::uint64_t>{3, 4, 77}; });
  expect([&](std::size_t) { return std::set<std::uint64_t>{}; });
  expect([&](std::size_t r) { return r == 0 ? all(shape.rows) : std::set<std::uint64_t>{}; });
  expect([&](std::size_t r) { return std::set<std::uint64_t>{r * 7 % shape.rows}; });
}

TEST_P(Sparse, CallsOfAllKindsFollowOneAnother) {
  const Shape shape{5000, 17};
  constexpr std::size_t kCalls = 3;
  std::vector<std::vector<Rows>> inputs(kCalls);
  std::vector<std::vector<SparseTensor>> sparse(kCalls, std::vector<SparseTensor>(world()));
  std::vector<std::vector<float>> dense(world(), std::vector<float>(40'000, 1.0F));
  std::size_t denseEnded = 0;
  for (std::size_t r = 0; r < world(); ++r) {
    testing::Rank& rank = *cluster_.ranks[r];
    for (std::size_t call = 0; call < kCalls; ++call) {
      inputs[call].push_back(rowsOf(some(random_() % 300, shape.rows, random_), shape.elements, random_));
      makeCall(cluster_, r, inputs[call][r], shape, sparse[call][r]);
      if (call > 0) continue;
      rank.onLoop([&] {
        rank.pipeline->submit({.operands = {{dense[r].data(), dense[r].size(), {.dtype = DType::Float32}}},
                               .signature = {},
                               .done = [&](const Error&) { ++denseEnded; }},
                              1);
      });
    }
  }
  for (std::size_t call = 0; call < kCalls; ++call) {
    playToTheEnd(cluster_, sparse[call], random_);
    for (const SparseTensor& tensor : sparse[call]) ASSERT_EQ(tensor.rows(shape.elements), sumOf(inputs[call]));
  }
  EXPECT_EQ(denseEnded, world());
  for (const auto& tensor : dense) EXPECT_EQ(tensor, std::vector<float>(40'000, static_cast<float>(world())));
}

TEST_P(Sparse, ARankThatRefusesEndsItsOwnCallAlone) {
  if (world() == 1) GTEST_SKIP() << "nobody else";
  const Shape shape{100, 5};
  for (const auto& keys : {std::set<std::uint64_t>{1, 2, 50}, all(shape.rows)}) {
    std::vector<SparseTensor> tensors(world());
    for (std::size_t r = 0; r < world(); ++r) {
      const bool refuses = r == world() - 1;
      makeCall(cluster_, r, refuses ? Rows{} : rowsOf(keys, 5, random_), shape, tensors[r],
               refuses ? makeError(ErrorKind::Refused, "a reason") : Error{});
    }
    playToTheEnd(cluster_, tensors, random_);
    for (std::size_t r = 0; r + 1 < world(); ++r) {
      const std::string ended = tensors[r].ended.value_or("");
      EXPECT_NE(ended.find("rank " + std::to_string(world() - 1) + " refused"), std::string::npos);
    }
    EXPECT_EQ(tensors.back().ended, "a reason");
    expectSums(cluster_, std::vector<Rows>(world(), rowsOf({9}, 5, random_)), shape, random_);
  }
}

// Bulk slices of a call in which no two ranks share a row.
std::uint64_t bulkSlices(std::uint64_t rowsOfEach) {
  Cluster cluster({{2, 2}}, 4096 * kKiB, 1024 * kKiB);
  std::mt19937 random(7);
  std::vector<Rows> inputs;
  for (std::uint64_t r = 0; r < cluster.ranks.size(); ++r) {
    std::set<std::uint64_t> keys;
    for (std::uint64_t i = 0; i < rowsOfEach; ++i) keys.insert(i * cluster.ranks.size() + r);
    inputs.push_back(rowsOf(keys, 1, random));
  }
  expectSums(cluster, inputs, {1ULL << 32, 1}, random);
  return cluster.ranks.front()->pipeline->completed()[SliceQueue::HostBulk];
}

TEST(SparseKeys, OfFewRowsTravelWithTheirCounts) {
  EXPECT_EQ(bulkSlices(200), 1U);
  EXPECT_EQ(bulkSlices(600), 2U);
}

// Bytes that went to the rails in a call of rows that no two ranks share.
std::uint64_t railBytes(Cluster& cluster, std::uint64_t rowsOfEach, const Shape& shape) {
  std::mt19937 random(7);
  std::vector<Rows> inputs;
  for (std::size_t r = 0; r < cluster.ranks.size(); ++r) {
    std::set<std::uint64_t> keys;
    for (std::uint64_t i = 0; i < rowsOfEach; ++i) keys.insert(i * cluster.ranks.size() + r);
    inputs.push_back(rowsOf(keys, shape.elements, random));
  }
  expectSums(cluster, inputs, shape, random);
  std::uint64_t bytes = 0;
  for (const auto& rank : cluster.ranks) {
    for (const auto& [level, traffic] : rank->rails->traffic()) bytes += traffic.bytes;
  }
  return bytes;
}

TEST(SparseBytes, BetweenTwoMachinesAreThoseOfTheirRowsOnce) {
  Cluster cluster({{2, 2}}, 4096 * kKiB, 1024 * kKiB);
  const Shape shape{100'000, 256};
  const std::uint64_t rows = 4 * 100 * 256 * sizeof(float);
  EXPECT_GE(railBytes(cluster, 100, shape), rows);
  EXPECT_LE(railBytes(cluster, 100, shape) / 2, rows + rows / 20);
}

}  // namespace
}  // namespace fairring
