// Reduce-scatters and all-gathers by whole ranks, among all-reduces, in any order of events.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>

#include "engine_ranks.h"

namespace fairring {
namespace {

using testing::Cluster;
using testing::kKiB;
using testing::Machines;

using Bytes = std::vector<std::byte>;

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
                             {{1, 1, 1, 1, 1, 1, 1, 1}}};

enum class Kind { AllReduce, ReduceScatter, AllGather };

struct Tensor {
  std::vector<std::uint64_t> elements;  // of each rank's block
};

// Of one call on one rank: what it has, and what it gets.
struct Held {
  std::vector<std::vector<std::vector<float>>> from;  // [tensor][block]
  std::vector<std::vector<std::vector<float>>> to;
};

float valueOf(int rank, std::size_t call, std::size_t tensor, int block, std::uint64_t element) {
  const auto all =
      static_cast<std::uint64_t>(rank) * 31 + call * 17 + tensor * 7 + static_cast<std::uint64_t>(block) * 3;
  return static_cast<float>((all + element) % 50) - 20.0F;
}

class Calls {
 public:
  Calls(Cluster& cluster, std::mt19937& random) : cluster_(cluster), world_(cluster.world()) {
    const std::size_t count = 1 + random() % 4;
    for (std::size_t c = 0; c < count; ++c) {
      kinds_.push_back(static_cast<Kind>(random() % 3));
      std::vector<Tensor>& tensors = tensors_.emplace_back(1 + random() % 3);
      const bool isEmpty = random() % 6 == 0;
      for (Tensor& tensor : tensors) {
        tensor.elements.assign(static_cast<std::size_t>(world_), random() % (random() % 2 == 0 ? 30 : 5'000));
        if (isEmpty) std::ranges::fill(tensor.elements, 0);
        if (isEmpty || random() % 3 > 0) continue;
        for (std::uint64_t& elements : tensor.elements) elements = random() % 2'000;
      }
    }
    for (int rank = 0; rank < world_; ++rank) {
      for (std::size_t c = 0; c < count; ++c) held_[{rank, c}] = made(rank, c);
    }
  }

  void submit(int rank) {
    for (std::size_t c = 0; c < kinds_.size(); ++c) {
      Call call{.operands = {}, .signature = {}, .done = [this](const Error& error) {
                  EXPECT_FALSE(error) << error.text();
                  ++done_;
                }};
      fill(call, rank, c);
      Pipeline& pipeline = *cluster_.ranks[static_cast<std::size_t>(rank)]->pipeline;
      cluster_.ranks[static_cast<std::size_t>(rank)]->onLoop([&] { pipeline.submit(std::move(call), c); });
    }
  }

  bool allDone() const { return done_ == kinds_.size() * static_cast<std::size_t>(world_); }

  void check() const {
    for (int rank = 0; rank < world_; ++rank) {
      for (std::size_t c = 0; c < kinds_.size(); ++c) {
        for (std::size_t t = 0; t < tensors_[c].size(); ++t) {
          for (int block = 0; block < world_; ++block) checkBlock(rank, c, t, block);
        }
      }
    }
  }

 private:
  Held made(int rank, std::size_t call) const {
    Held held;
    for (std::size_t t = 0; t < tensors_[call].size(); ++t) {
      auto& from = held.from.emplace_back();
      auto& to = held.to.emplace_back();
      for (int block = 0; block < world_; ++block) {
        const std::uint64_t elements = tensors_[call][t].elements[static_cast<std::size_t>(block)];
        auto& values = from.emplace_back(elements);
        for (std::uint64_t i = 0; i < elements; ++i) values[i] = valueOf(rank, call, t, block, i);
        to.emplace_back(elements, -1000.0F);
      }
    }
    return held;
  }

  void fill(Call& call, int rank, std::size_t index) {
    Held& held = held_.at({rank, index});
    const Kind kind = kinds_[index];
    if (kind == Kind::AllReduce) {  // of every block as a tensor, in place
      held.to = held.from;
      for (auto& blocks : held.to) {
        for (auto& block : blocks) call.operands.push_back({block.data(), block.size(), {.dtype = DType::Float32}});
      }
      return;
    }
    BlocksOperand operand{kind == Kind::ReduceScatter ? Half::ReduceScatter : Half::AllGather, {}};
    for (int block = 0; block < world_; ++block) {
      const auto place = static_cast<std::size_t>(block);
      const bool mine = block == rank;
      auto& blocks = operand.byRank.emplace_back();
      for (std::size_t t = 0; t < held.from.size(); ++t) {
        const bool reads = kind == Kind::ReduceScatter || mine;
        const bool writes = kind == Kind::AllGather || mine;
        blocks.push_back({.from = reads ? held.from[t][place].data() : nullptr,
                          .to = writes ? held.to[t][place].data() : nullptr,
                          .elements = held.from[t][place].size(),
                          .reduction = {.dtype = DType::Float32}});
      }
    }
    call.blocks = std::move(operand);
  }

  void checkBlock(int rank, std::size_t call, std::size_t tensor, int block) const {
    const auto& values = held_.at({rank, call}).to[tensor][static_cast<std::size_t>(block)];
    const Kind kind = kinds_[call];
    for (std::uint64_t i = 0; i < values.size(); ++i) {
      float expected = 0;
      for (int from = 0; from < world_; ++from) expected += valueOf(from, call, tensor, block, i);
      if (kind == Kind::AllGather) expected = valueOf(block, call, tensor, block, i);
      if (kind == Kind::ReduceScatter && block != rank) expected = -1000.0F;  // as it was
      ASSERT_EQ(values[i], expected) << "rank " << rank << ", call " << call << " of kind " << static_cast<int>(kind)
                                     << ", tensor " << tensor << ", block " << block << ", element " << i;
    }
  }

  Cluster& cluster_;
  const int world_;
  std::vector<Kind> kinds_;
  std::vector<std::vector<Tensor>> tensors_;  // [call]
  std::map<std::pair<int, std::size_t>, Held> held_;
  std::size_t done_ = 0;
};

TEST(Blocks, RanksGetTheirOwnOfEverySumAndAllOfEveryGatherOnEveryLayout) {
  for (unsigned seed = 0; seed < 140; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    Cluster cluster(kLayouts[seed % std::size(kLayouts)], 512 * kKiB, 16 * kKiB, {4 * kKiB, 8 * kKiB});
    Calls calls(cluster, random);
    int submitted = 0;
    for (int step = 0; !calls.allDone(); ++step) {
      ASSERT_LT(step, 2'000'000) << "stalled";
      if (submitted < cluster.world() && random() % 20 == 0) calls.submit(submitted++);
      ASSERT_TRUE(cluster.step(random));
      for (const auto& rank : cluster.ranks) ASSERT_TRUE(rank->errors.empty()) << rank->errors.front();
    }
    calls.check();
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Sums of floats depend on their order.
TEST(Blocks, AReduceScatterHasTheBitsOfTheAllReduce) {
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
      BlocksOperand blocks{Half::ReduceScatter, {}};
      for (std::size_t block = 0; block < world; ++block) {
        blocks.byRank.push_back({{.from = inputs[rank].data() + block * kElements,
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
        pipeline.submit({.operands = {}, .blocks = std::move(blocks), .signature = {}, .done = ended}, 2);
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
