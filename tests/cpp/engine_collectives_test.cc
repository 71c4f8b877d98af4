// Collectives of every pattern by whole ranks, among one another, in any order of events.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>

#include "engine/all_to_all_call.h"
#include "engine_ranks.h"

namespace fairring {
namespace {

using testing::Cluster;
using testing::kKiB;
using testing::Machines;

constexpr float kUntouched = -1000.0F;

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

constexpr Pattern kPatterns[] = {Pattern::AllReduce, Pattern::Reduce,  Pattern::Broadcast, Pattern::ReduceScatter,
                                 Pattern::AllGather, Pattern::Scatter, Pattern::Gather,    Pattern::AllToAll};

struct Tensor {
  std::vector<std::uint64_t> elements;  // of each rank's block
};

// The inputs and outputs of one call on one rank.
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
      patterns_.push_back(kPatterns[random() % std::size(kPatterns)]);
      const auto someone = static_cast<int>(random() % static_cast<unsigned>(world_));
      roots_.push_back(hasRoot(patterns_.back()) ? someone : -1);
      std::vector<Tensor>& tensors = tensors_.emplace_back(1 + random() % 3);
      drawCells(random);
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
    for (std::size_t c = 0; c < patterns_.size(); ++c) {
      Call call{.pattern = patterns_[c], .root = roots_[c], .signature = {}, .done = [this](const Error& error) {
                  EXPECT_FALSE(error) << error.text();
                  ++done_;
                }};
      fill(call, rank, c);
      Pipeline& pipeline = *cluster_.ranks[static_cast<std::size_t>(rank)]->pipeline;
      cluster_.ranks[static_cast<std::size_t>(rank)]->onLoop([&] { pipeline.submit(std::move(call), c); });
    }
  }

  // The ranks that each rank waits for.
  std::string stalled() const {
    std::string text;
    for (std::size_t c = 0; c < patterns_.size(); ++c)
      text += describe(planOf(patterns_[c], {0, 1})) + " from " + std::to_string(roots_[c]) + "; ";
    for (const auto& rank : cluster_.ranks) {
      for (const int peer : rank->rails->missing()) text += "rail " + std::to_string(peer) + " ";
      for (const int peer : rank->machine->missing()) text += "local " + std::to_string(peer) + " ";
      text += "; ";
    }
    return text;
  }
  bool allDone() const { return done_ == patterns_.size() * static_cast<std::size_t>(world_); }

  void check() const {
    for (int rank = 0; rank < world_; ++rank) {
      for (std::size_t c = 0; c < patterns_.size(); ++c) {
        for (std::size_t t = 0; t < tensors_[c].size(); ++t) {
          if (t > 0 && patterns_[c] == Pattern::AllToAll) break;
          for (int block = 0; block < world_; ++block) checkBlock(rank, c, t, block);
        }
      }
    }
  }

 private:
  // Elements that each rank has for each other one: sometimes equal, and sometimes one has many.
  void drawCells(std::mt19937& random) {
    const auto world = static_cast<std::size_t>(world_);
    auto& cells = cells_.emplace_back(world, std::vector<std::uint64_t>(world, random() % 700));
    const auto kind = random() % 3;
    for (auto& row : cells) {
      if (kind == 1) std::ranges::generate(row, [&] { return random() % 300; });
    }
    if (kind == 2) cells[random() % world][random() % world] = random() % 20'000;
  }
  std::uint64_t cellOf(std::size_t call, int from, int to) const {
    return cells_[call][static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
  }

  Held madeForAll(int rank, std::size_t call) const {
    Held held{{{}}, {{}}};
    for (int peer = 0; peer < world_; ++peer) {
      auto& values = held.from.front().emplace_back(cellOf(call, rank, peer));
      for (std::uint64_t i = 0; i < values.size(); ++i) values[i] = valueOf(rank, call, 0, peer, i);
      held.to.front().emplace_back(cellOf(call, peer, rank), kUntouched);
    }
    return held;
  }

  Held made(int rank, std::size_t call) const {
    if (patterns_[call] == Pattern::AllToAll) return madeForAll(rank, call);
    Held held;
    for (std::size_t t = 0; t < tensors_[call].size(); ++t) {
      auto& from = held.from.emplace_back();
      auto& to = held.to.emplace_back();
      for (int block = 0; block < world_; ++block) {
        const std::uint64_t elements = tensors_[call][t].elements[static_cast<std::size_t>(block)];
        auto& values = from.emplace_back(elements);
        for (std::uint64_t i = 0; i < elements; ++i) values[i] = valueOf(rank, call, t, block, i);
        to.emplace_back(elements, kUntouched);
      }
    }
    return held;
  }

  bool isRoot(int rank, std::size_t call) const { return roots_[call] == rank; }
  bool reads(int rank, std::size_t call, int block) const {
    switch (patterns_[call]) {
      case Pattern::AllGather:
      case Pattern::Gather: return block == rank;
      case Pattern::Broadcast:
      case Pattern::Scatter: return isRoot(rank, call);
      default: return true;
    }
  }
  bool writes(int rank, std::size_t call, int block) const {
    switch (patterns_[call]) {
      case Pattern::Broadcast: return !isRoot(rank, call);
      case Pattern::Reduce:
      case Pattern::Gather: return isRoot(rank, call);
      case Pattern::ReduceScatter:
      case Pattern::Scatter: return block == rank;
      default: return true;
    }
  }

  void fill(Call& call, int rank, std::size_t index) {
    Held& held = held_.at({rank, index});
    if (call.pattern == Pattern::AllReduce) {  // of every block as a tensor, in place
      held.to = held.from;
      for (auto& blocks : held.to) {
        for (auto& block : blocks) call.operands.push_back({block.data(), block.size(), {.dtype = DType::Float32}});
      }
      return;
    }
    std::vector<CellPair> cells;
    for (int block = 0; block < world_; ++block) {
      const auto place = static_cast<std::size_t>(block);
      if (call.pattern == Pattern::AllToAll) {
        auto& from = held.from.front()[place];
        auto& to = held.to.front()[place];
        cells.push_back({from.data(), from.size() * sizeof(float), to.data(), to.size() * sizeof(float)});
        continue;
      }
      if (call.blocks.empty() || isByRank(call.pattern)) call.blocks.emplace_back();
      for (std::size_t t = 0; t < held.from.size(); ++t) {
        call.blocks.back().push_back({.from = reads(rank, index, block) ? held.from[t][place].data() : nullptr,
                                      .to = writes(rank, index, block) ? held.to[t][place].data() : nullptr,
                                      .elements = held.from[t][place].size(),
                                      .reduction = {.dtype = DType::Float32}});
      }
    }
    if (!cells.empty()) call.parts = std::make_shared<AllToAllCall>(std::move(cells), rank);
  }

  float expected(int rank, std::size_t call, std::size_t tensor, int block, std::uint64_t element) const {
    switch (patterns_[call]) {
      case Pattern::AllToAll: return valueOf(block, call, tensor, rank, element);
      case Pattern::AllGather:
      case Pattern::Gather: return valueOf(block, call, tensor, block, element);
      case Pattern::Broadcast:
      case Pattern::Scatter: return valueOf(roots_[call], call, tensor, block, element);
      default: break;
    }
    float sum = 0;
    for (int from = 0; from < world_; ++from) sum += valueOf(from, call, tensor, block, element);
    return sum;
  }

  void checkBlock(int rank, std::size_t call, std::size_t tensor, int block) const {
    const auto& values = held_.at({rank, call}).to[tensor][static_cast<std::size_t>(block)];
    const bool isWritten = writes(rank, call, block);
    for (std::uint64_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], isWritten ? expected(rank, call, tensor, block, i) : kUntouched)
          << "rank " << rank << ", call " << call << " by " << describe(planOf(patterns_[call], {0, 1})) << " from "
          << roots_[call] << ", tensor " << tensor << ", block " << block << ", element " << i;
    }
  }

  Cluster& cluster_;
  const int world_;
  std::vector<Pattern> patterns_;
  std::vector<int> roots_;
  std::vector<std::vector<std::vector<std::uint64_t>>> cells_;  // [call][from][to]
  std::vector<std::vector<Tensor>> tensors_;                    // [call]
  std::map<std::pair<int, std::size_t>, Held> held_;
  std::size_t done_ = 0;
};

TEST(Collectives, OfEveryPatternAreRightOnEveryLayoutInAnyOrderOfEvents) {
  for (unsigned seed = 0; seed < 420; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    Cluster cluster(kLayouts[seed % std::size(kLayouts)], 512 * kKiB, 16 * kKiB, {4 * kKiB, 8 * kKiB});
    Calls calls(cluster, random);
    int submitted = 0;
    for (int step = 0; !calls.allDone(); ++step) {
      ASSERT_LT(step, 2'000'000) << "stalled: " << calls.stalled();
      if (submitted < cluster.world() && random() % 20 == 0) calls.submit(submitted++);
      ASSERT_TRUE(cluster.step(random));
      for (const auto& rank : cluster.ranks) ASSERT_TRUE(rank->errors.empty()) << rank->errors.front();
    }
    calls.check();
    if (::testing::Test::HasFatalFailure()) return;
  }
}

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
