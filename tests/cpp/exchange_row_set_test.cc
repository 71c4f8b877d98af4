#include "exchange/row_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "exchange/row_sums.h"

namespace fairring {
namespace {

using Keys = std::vector<std::uint64_t>;

const Keys kCall{2, 3, 5, 8, 13, 21};

RowSet rowSetOf(const Keys& keys, std::uint64_t rowBytes) {
  KeyBits bits(wordsFor(kCall.size()));
  for (std::uint64_t row = 0; row < kCall.size(); ++row)
    if (std::ranges::find(keys, kCall[row]) != keys.end()) setKey(bits, row);
  return {std::move(bits), rowBytes};
}

TEST(RowSet, CountsWhatIsThereUpToAnyByte) {
  const RowSet rowSet = rowSetOf({3, 5, 21}, 4);
  const Keys before{0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 9, 10, 11, 12};
  for (std::uint64_t at = 0; at < before.size(); ++at) EXPECT_EQ(rowSet.before(at), before[at]) << at;
  EXPECT_EQ(rowSet.within({6, 22}), 8U);
  EXPECT_EQ(rowSet.bytes(), 12U);
}

TEST(RowSet, MayBeOfNothingOrOfAll) {
  EXPECT_EQ(RowSet().bytes(), 0U);
  EXPECT_FALSE(RowSet().stretchFrom(0).here);
  EXPECT_EQ(rowSetOf({}, 8).within({0, 48}), 0U);
  EXPECT_EQ(rowSetOf(kCall, 8).within({5, 48}), 43U);
  EXPECT_EQ(rowSetOf(kCall, 0).bytes(), 0U) << "rows of no elements";
}

TEST(RowSet, TellsStretchesOverWholeWords) {
  const KeyBits rows{~0ULL << 60, ~0ULL, 0b1011, 0, 0, 1};
  const RowSet rowSet(rows, 1);
  for (std::uint64_t row = 0; row < rows.size() * 64;) {
    const auto [here, end] = rowSet.stretchFrom(row);
    ASSERT_GT(end, row);
    for (; row < std::min<std::uint64_t>(end, rows.size() * 64); ++row)
      EXPECT_EQ(here, (rows[row / 64] >> (row % 64) & 1) != 0) << row;
  }
  EXPECT_EQ(rowSet.stretchFrom(0).end, 60U);
  EXPECT_GE(rowSet.stretchFrom(60).end, 128U) << "a full word is not looked at row by row";
  EXPECT_GE(rowSet.stretchFrom(132).end, 320U);
}

struct Contribution {
  Keys keys;
  std::vector<float> rows;
};

// The sum of some stretch of rows of `elements` each, on a loop of its own.
std::vector<float> summed(const std::vector<Contribution>& contributions, std::uint64_t elements, const Range& rows,
                          bool packed, int groups = 0) {
  const std::uint64_t rowBytes = elements * sizeof(float);
  std::vector<RowSet> rowSets;
  for (const Contribution& one : contributions) rowSets.push_back(rowSetOf(one.keys, rowBytes));
  std::vector<float> out(rows.size() * elements, -1);
  RowSum sum{.reduction = {.dtype = DType::Float32},
             .range = {rows.begin * rowBytes, rows.end * rowBytes},
             .out = reinterpret_cast<std::byte*>(out.data()),
             .packed = packed,
             .groups = groups};
  for (std::size_t i = 0; i < contributions.size(); ++i) {
    const auto* const data = reinterpret_cast<const std::byte*>(contributions[i].rows.data());
    sum.inputs.push_back({&rowSets[i], data + rowSets[i].before(sum.range.begin)});
  }
  Loop loop;
  bool done = false;
  loop.post([&] { jobOf(std::vector{sum}).run(loop, &done, 0, [&] { done = true; }); });
  while (!done) loop.runOnce(std::chrono::milliseconds(0));
  return out;
}

TEST(RowSums, AreOfWhoeverHasTheRow) {
  const std::vector<Contribution> both{{{2, 5}, {1, 2, 3, 4}}, {{5, 8}, {10, 20, 30, 40}}};
  EXPECT_EQ(summed(both, 2, {0, 4}, false), (std::vector<float>{1, 2, -1, -1, 13, 24, 30, 40}));
  EXPECT_EQ(summed(both, 2, {0, 4}, true), (std::vector<float>{1, 2, 13, 24, 30, 40, -1, -1}));
  EXPECT_EQ(summed(both, 2, {1, 3}, true), (std::vector<float>{13, 24, -1, -1}));
}

TEST(RowSums, OfGroupsAreSummedGroupByGroup) {
  constexpr float kLarge = 1 << 24;  // one more is lost
  const std::vector<Contribution> all{{{2}, {kLarge}}, {{3}, {5}}, {{2}, {1}}, {{2}, {1}}};
  EXPECT_EQ(summed(all, 1, {0, 2}, false), (std::vector<float>{kLarge, 5}));
  EXPECT_EQ(summed(all, 1, {0, 2}, false, 2), (std::vector<float>{kLarge + 2, 5}));
}

TEST(RowSums, GoOnOverManyPieces) {
  constexpr std::uint64_t kElements = 300'000;
  std::vector<float> expected(3 * kElements);
  std::vector<Contribution> all{{{2, 3, 5}, {}}, {{2, 3, 5}, {}}, {{3}, {}}};
  std::mt19937 random(1);
  for (Contribution& one : all) {
    one.rows.resize(one.keys.size() * kElements);
    for (std::size_t i = 0; i < one.rows.size(); ++i) {
      one.rows[i] = static_cast<float>(random() % 100);
      expected[one.keys.size() == 1 ? kElements + i : i] += one.rows[i];
    }
  }
  EXPECT_EQ(summed(all, kElements, {0, 3}, false), expected);
}

}  // namespace
}  // namespace fairring
