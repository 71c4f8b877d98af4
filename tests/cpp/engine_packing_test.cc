// Calls of many tensors: which tensors share a slice, and the results of whole ranks.
#include "engine/packing.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>
#include <random>

#include "engine_ranks.h"

namespace fairring {
namespace {

using testing::Cluster;
using testing::kKiB;
using testing::Machines;

constexpr DType kDTypes[] = {DType::Float32, DType::BFloat16, DType::Int64, DType::UInt8, DType::Float64, DType::Int16};

// Small integers: exact in every dtype.
void store(DType dtype, int value, std::byte* to) {
  const auto put = [to](auto converted) { std::memcpy(to, &converted, sizeof converted); };
  switch (dtype) {
    case DType::Float32: return put(static_cast<float>(value));
    case DType::Float64: return put(static_cast<double>(value));
    case DType::BFloat16:
      return put(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16));
    case DType::Int16: return put(static_cast<std::int16_t>(value));
    case DType::Int64: return put(static_cast<std::int64_t>(value));
    default: return put(static_cast<std::uint8_t>(value));
  }
}

struct Shape {
  DType dtype;
  std::uint64_t elements;
};

std::vector<Shape> randomShapes(std::mt19937& random) {
  std::vector<Shape> shapes(1 + random() % 60);
  for (Shape& shape : shapes) {
    shape = {kDTypes[random() % std::size(kDTypes)], random() % (random() % 4 == 0 ? 9'000 : 12)};
  }
  return shapes;
}

int valueOf(int rank, std::size_t tensor, std::uint64_t element) {
  return static_cast<int>((static_cast<std::uint64_t>(rank) * 3 + tensor * 5 + element) % 7);
}

// A rank's tensors before the call or, given all ranks, the expected tensors after it.
std::vector<std::vector<std::byte>> tensorsOf(const std::vector<Shape>& shapes, int firstRank, int endRank) {
  std::vector<std::vector<std::byte>> tensors;
  for (std::size_t t = 0; t < shapes.size(); ++t) {
    const std::size_t elementBytes = bytesOf(shapes[t].dtype);
    std::vector<std::byte>& tensor = tensors.emplace_back(shapes[t].elements * elementBytes);
    for (std::uint64_t i = 0; i < shapes[t].elements; ++i) {
      int sum = 0;
      for (int rank = firstRank; rank < endRank; ++rank) sum += valueOf(rank, t, i);
      store(shapes[t].dtype, sum, tensor.data() + i * elementBytes);
    }
  }
  return tensors;
}

TEST(Packing, EveryElementStandsAtAMultipleOfItsSizeAndInOnePieceOfAnyCut) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    const std::vector<Shape> shapes = randomShapes(random);
    std::vector<Operand> operands;
    std::vector<std::vector<std::byte>> tensors = tensorsOf(shapes, 0, 1);
    for (std::size_t t = 0; t < shapes.size(); ++t) {
      operands.push_back({tensors[t].data(), shapes[t].elements, {.dtype = shapes[t].dtype}});
    }
    const Packing packing(operands);
    std::vector<std::uint64_t> found(shapes.size(), 0);
    for (std::uint64_t begin = 0; begin < packing.bytes();) {
      const std::uint64_t end = std::min(begin + 64 * (1 + random() % 50), packing.bytes());
      std::uint64_t before = 0;
      for (const Portion& portion : packing.cut({begin, end})) {
        const std::size_t elementBytes = bytesOf(portion.reduction.dtype);
        ASSERT_EQ(portion.begin % elementBytes, 0U);
        ASSERT_GE(portion.begin, before);
        before = portion.end();
        const auto tensor = std::ranges::find_if(tensors, [&](const auto& bytes) {
          return portion.to >= bytes.data() && portion.to < bytes.data() + bytes.size();
        });
        ASSERT_NE(tensor, tensors.end());
        const auto t = static_cast<std::size_t>(tensor - tensors.begin());
        ASSERT_EQ(portion.to, tensor->data() + found[t] * elementBytes) << "each follows the last";
        found[t] += portion.elements;
      }
      ASSERT_LE(before, end - begin);
      begin = end;
    }
    for (std::size_t t = 0; t < shapes.size(); ++t) EXPECT_EQ(found[t], shapes[t].elements) << "seed " << seed;
  }
}

TEST(Packing, SmallTensorsShareASlice) {
  std::vector<float> memory(1000);
  std::vector<Operand> operands;
  for (float& element : memory) operands.push_back({&element, 1, {}});
  const Packing packing(operands);
  EXPECT_EQ(packing.bytes(), 4000U);
  EXPECT_EQ(packing.cut({0, 4000}).size(), 1000U);
  const std::vector<Portion> joined = joinedWithin(packing.cut({64, 4000}), {64, 192});
  ASSERT_EQ(joined.size(), 1U) << "reduced as one";
  EXPECT_EQ(joined[0].elements, 32U);
}

TEST(Packing, RanksSumAnyMixOfDTypesAndSizesOnEveryLayout) {
  const Machines layouts[] = {{{1}},       {{2}},       {{2, 2}},       {{3, 1}},
                              {{1, 1, 1}}, {{2, 2, 2}}, {{1, 3}, true}, {{1, 1, 1, 1, 1, 1, 1, 1}}};
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    Cluster cluster(layouts[seed % std::size(layouts)], 512 * kKiB, 16 * kKiB, {4 * kKiB, 8 * kKiB});
    const std::vector<Shape> shapes = randomShapes(random);
    std::vector<std::vector<std::vector<std::byte>>> tensors;
    for (int r = 0; r < cluster.world(); ++r) tensors.push_back(tensorsOf(shapes, r, r + 1));
    int finished = 0;
    for (int r = 0; r < cluster.world(); ++r) {
      const auto rank = static_cast<std::size_t>(r);
      std::vector<Operand> operands;
      for (std::size_t t = 0; t < shapes.size(); ++t) {
        operands.push_back({tensors[rank][t].data(), shapes[t].elements, {.dtype = shapes[t].dtype}});
      }
      cluster.ranks[rank]->onLoop([&] {
        cluster.ranks[rank]->pipeline->submit(
            {.operands = operands, .signature = {}, .done = [&](const Error&) { ++finished; }}, 1);
      });
    }
    for (int step = 0; finished < cluster.world(); ++step) {
      ASSERT_LT(step, 2'000'000) << "stalled";
      ASSERT_TRUE(cluster.step(random));
    }
    const auto expected = tensorsOf(shapes, 0, cluster.world());
    for (const auto& ofRank : tensors) ASSERT_EQ(ofRank, expected) << "seed " << seed;
  }
}

// One rank refuses a tensor of the second of three calls.
TEST(Packing, ARefusedTensorEndsItsOwnCallOnAllRanksAndSpoilsNothingElse) {
  for (const Machines& machines : {Machines{{2}}, {{1, 1}}, {{2, 2}}, {{3, 1}}, {{1, 1, 1}}, {{1, 2, 2}, true}}) {
    Cluster cluster(machines, 512 * kKiB, 16 * kKiB, {4 * kKiB, 8 * kKiB});
    const auto world = static_cast<std::size_t>(cluster.world());
    const std::size_t refusing = world - 1;
    const std::vector<Shape> shapes{{DType::Float32, 700}, {DType::Int64, 3}, {DType::BFloat16, 9'000}};
    std::vector<std::vector<std::vector<std::vector<std::byte>>>> tensors(world);
    std::vector<std::array<Error, 3>> errors(world);
    std::size_t ended = 0;
    for (std::size_t r = 0; r < world; ++r) {
      for (int call = 0; call < 3; ++call) {
        auto& mine = tensors[r].emplace_back(tensorsOf(shapes, static_cast<int>(r), static_cast<int>(r) + 1));
        const bool refuses = call == 1 && r == refusing;
        std::vector<Operand> operands;
        for (std::size_t t = 0; t < shapes.size(); ++t) {
          void* data = refuses && t == 1 ? nullptr : mine[t].data();
          operands.push_back({data, shapes[t].elements, {.dtype = shapes[t].dtype}});
        }
        cluster.ranks[r]->onLoop([&] {
          cluster.ranks[r]->pipeline->submit({.operands = operands,
                                              .signature = {"a call"},
                                              .refused = refuses ? makeError(ErrorKind::Refused, "no memory") : Error(),
                                              .done =
                                                  [&, r, call](const Error& error) {
                                                    errors[r][static_cast<std::size_t>(call)] = error;
                                                    ++ended;
                                                  }},
                                             static_cast<std::uint64_t>(call));
        });
      }
    }
    std::mt19937 random(5);
    for (int step = 0; ended < 3 * world; ++step) {
      ASSERT_LT(step, 2'000'000) << "stalled";
      ASSERT_TRUE(cluster.step(random));
    }
    const auto expected = tensorsOf(shapes, 0, cluster.world());
    for (std::size_t r = 0; r < world; ++r) {
      EXPECT_FALSE(errors[r][0] || errors[r][2]);
      ASSERT_TRUE(errors[r][1]);
      const std::string named = concat("rank ", refusing, " refused its part of a call");
      EXPECT_EQ(errors[r][1].text().substr(0, named.size()), r == refusing ? "no memory" : named);
      for (const std::size_t call : {0, 1, 2}) {
        EXPECT_EQ(tensors[r][call][0], expected[0]);
        EXPECT_TRUE(call == 1 || tensors[r][call][1] == expected[1]);
        EXPECT_EQ(tensors[r][call][2], expected[2]);
      }
    }
  }
}

}  // namespace
}  // namespace fairring
