// The results of whole ranks together under any schedule, compared with sums made another way.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <set>

#include "engine_ranks.h"
#include "exchange/point_to_point_header.h"

namespace fairring {
namespace {

using testing::Cluster;
using testing::inOrder;
using testing::kKiB;
using testing::Machines;
using testing::Player;
using testing::playToTheEnd;
using testing::Rank;
using testing::Script;
using testing::scriptOfWaits;

const Machines kLayouts[] = {
    {{1}},    {{2}},          {{4}},       {{1, 1}},          {{2, 2}}, {{2, 2}, true},     {{1, 1, 1, 1}},
    {{3, 1}}, {{1, 3}, true}, {{4, 3, 2}}, {{2, 2, 2}, true}, {{1, 2}}, {{2, 2}, false, 2}, {{1, 1, 1, 2}, false, 2},
};

// Eager messages always, never, and sometimes; and credits that suffice for all, for one message, or for none.
const EagerLimits kEagerLimits[] = {{}, {0, 0}, {4 * kKiB, 8 * kKiB}, {4 * kKiB, 0}, {64 * kKiB, 16 * kKiB}};

TEST(Ranks, SumsAreExactForEverySizeAndLayout) {
  for (const Machines& machines : kLayouts) {
    Cluster cluster(machines, 256 * kKiB, 32 * kKiB);
    const auto world = static_cast<std::uint64_t>(cluster.world());
    const std::uint64_t slice = 32 * kKiB / sizeof(float);
    std::mt19937 random(7);
    const Script script =
        inOrder(world, {0, 1, world - 1, world, world + 1, slice - 1, slice, slice + 1, 5 * slice + 17});
    playToTheEnd(cluster, script, random);
    if (HasFatalFailure()) FAIL() << cluster.planner.topology().describe();
  }
}

TEST(Ranks, RanksMayWaitWhereTheyLikeWithLittleStaging) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    std::mt19937 random(seed);
    const Machines& machines = kLayouts[random() % std::size(kLayouts)];
    Cluster cluster(machines, 256 * kKiB, 64 * kKiB, kEagerLimits[random() % std::size(kEagerLimits)]);
    playToTheEnd(cluster, scriptOfWaits(cluster.world(), random), random);
    if (HasFatalFailure()) FAIL() << "seed " << seed << ", " << cluster.planner.topology().describe();
  }
}

// Values whose sum depends on the order of summation, so equal bits mean an equal order.
TEST(Ranks, AllRanksHaveTheSameBitsInEveryScheduleForEveryPlanAndSliceSize) {
  const std::uint64_t elements = 20'011;
  for (const Machines& machines : {Machines{{2, 3}}, Machines{{1, 1, 1}}, Machines{{2, 1, 2}, true}}) {
    std::vector<float> first;
    std::set<std::string> plans;
    for (unsigned run = 0; run < 12; ++run) {
      std::mt19937 random(run);
      const std::uint64_t slice = std::array{16 * kKiB, 64 * kKiB, 1024 * kKiB}[run % 3];
      Cluster cluster(machines, 4 * slice * 4, slice);
      plans.insert(describe(cluster.planner.choose(elements * sizeof(float)).plan));
      std::vector<std::vector<float>> tensors;
      std::size_t finished = 0;
      for (int r = 0; r < cluster.world(); ++r) {
        std::vector<float>& tensor = tensors.emplace_back(elements);
        std::mt19937 values(static_cast<unsigned>(r));
        for (float& value : tensor) value = std::uniform_real_distribution<float>(-1e3F, 1e3F)(values);
      }
      for (int r = 0; r < cluster.world(); ++r) {
        Rank& rank = *cluster.ranks[static_cast<std::size_t>(r)];
        rank.onLoop([&] {
          rank.pipeline->submit(
              {.operands = {{tensors[static_cast<std::size_t>(r)].data(), elements, {.dtype = DType::Float32}}},
               .signature = {},
               .done = [&](const Error&) { ++finished; }},
              1);
        });
      }
      while (finished < tensors.size()) ASSERT_TRUE(cluster.step(random));
      if (first.empty()) first = tensors[0];
      for (const auto& tensor : tensors) {
        ASSERT_EQ(std::memcmp(tensor.data(), first.data(), elements * sizeof(float)), 0) << "run " << run;
      }
    }
    if (machines.ranks == std::vector{1, 1, 1}) {
      EXPECT_EQ(plans.size(), 2U) << "both the one-shot and the two-shot plan were meant to occur";
    }
  }
}

TEST(Ranks, NoRankSendsMoreThanItsShareOfEachWay) {
  const std::uint64_t elements = 1 << 20;
  const std::uint64_t bytes = elements * sizeof(float);
  for (const std::vector<int>& sizes : {std::vector{8, 7}, std::vector{3, 1}, std::vector{4, 3, 2}}) {
    Cluster cluster({sizes}, 64 << 20, 25 << 20);
    std::mt19937 random(3);
    playToTheEnd(cluster, inOrder(static_cast<std::size_t>(cluster.world()), {elements}), random);
    const Topology& topology = cluster.planner.topology();
    const auto machines = static_cast<std::uint64_t>(topology.machines());
    for (int r = 0; r < cluster.world(); ++r) {
      const std::uint64_t ranks = topology.ranksOf(topology.machineOf(r)).size();
      const std::uint64_t slices = 64;  // at most, each with its own rounding
      const std::uint64_t held = (bytes + ranks - 1) / ranks + 64 * slices;
      EXPECT_LE(cluster.network.bytesSentBy[r], 2 * held * (machines - 1) / machines + 64 * slices * machines)
          << "rank " << r << " of " << topology.describe();
    }
  }
}

// One rank is far behind: its credit bounds the data that the others send it in advance.
TEST(Ranks, WhoIsBehindHoldsNoMoreThanTheCredit) {
  for (const EagerLimits& limits : kEagerLimits) {
    Cluster cluster({{1, 1, 1}}, 512 * kKiB, 32 * kKiB, limits);
    const std::size_t calls = 60;
    Script script = inOrder(3, std::vector<std::uint64_t>(calls, 900));
    std::ranges::fill(script.waitBefore[2], 0);
    std::mt19937 random(11);
    Player player(cluster, script);
    player.makeCallsOf(0);
    player.makeCallsOf(1);
    for (int step = 0; step < 20'000; ++step) ASSERT_TRUE(cluster.step(random));
    const std::uint64_t sent = cluster.network.bytesSentTo[2];
    EXPECT_LE(sent, 2 * limits.creditBytes);
    EXPECT_EQ(sent > 0, limits.creditBytes >= 4 * kKiB) << "what fits is sent in advance";
    for (int step = 0; !player.allFinished(); ++step) {
      ASSERT_LT(step, 1'000'000) << "stalled";
      player.makeCallsOf(2);
      ASSERT_TRUE(cluster.step(random));
    }
    for (std::size_t call = 0; call < calls; ++call) ASSERT_EQ(player.results[2][call], player.expected(call));
  }
}

// A call whose tensor is sent in place ends when that has been acknowledged. If the peer could leave before, its
// channel would end with the acknowledgement outstanding, and the call would never end.
TEST(Ranks, WhoWaitsForAnAcknowledgementNeedsThePeer) {
  bool waited = false;
  for (unsigned seed = 0; seed < 40; ++seed) {
    Cluster cluster({{1, 1}}, 4096 * kKiB, 1024 * kKiB);
    std::mt19937 random(seed);
    const Script script = inOrder(2, {1 << 20});
    Player player(cluster, script);
    player.makeCalls();
    while (!player.allFinished()) {
      ASSERT_TRUE(cluster.step(random));
      for (const int rank : {0, 1}) {
        if (player.finished[static_cast<std::size_t>(rank)] > 0 ||
            player.finished[static_cast<std::size_t>(1 - rank)] == 0)
          continue;
        waited = true;
        EXPECT_TRUE(cluster.ranks[static_cast<std::size_t>(rank)]->rails->needs(1 - rank)) << "seed " << seed;
      }
    }
  }
  EXPECT_TRUE(waited);
}

TEST(Ranks, DifferentCallsAreAMismatchNotAWrongSum) {
  struct Calls {
    std::uint64_t mine;
    std::uint64_t others;
  };
  for (const Calls& calls : {Calls{100, 200}, {0, 100}, {100, 0}, {100, 100}}) {
    for (const Machines& machines : {Machines{{2}}, Machines{{1, 1}}}) {
      Cluster cluster(machines, 256 * kKiB, 64 * kKiB);
      std::vector<double> memory(400, 1.0);
      const auto submit = [&](std::size_t rank, std::uint64_t elements) {
        cluster.ranks[rank]->onLoop([&] {
          cluster.ranks[rank]->pipeline->submit(
              {.operands = {{memory.data() + 200 * rank, elements, {}}}, .signature = {}, .done = [](const Error&) {}},
              rank);
        });
      };
      submit(0, calls.mine);
      submit(1, calls.others);
      std::mt19937 random(5);
      const auto noticed = [&] {
        return cluster.ranks[0]->differs.contains(1) || cluster.ranks[1]->differs.contains(0);
      };
      for (int step = 0; step < 100'000 && !noticed(); ++step) cluster.step(random);
      EXPECT_TRUE(noticed()) << calls.mine << " against " << calls.others;
      for (const auto& rank : cluster.ranks) EXPECT_TRUE(rank->errors.empty()) << rank->errors.front();
    }
  }
}

// A part without bytes would end the arrival of the one whose name it has.
TEST(Ranks, APartWithoutBytesIsRefused) {
  for (const bool isAside : {true, false}) {
    Cluster cluster(Machines{{1, 1}}, 256 * kKiB, 64 * kKiB);
    std::vector<double> memory(4, 1.0);
    const auto submit = [&](std::size_t rank) {
      cluster.ranks[rank]->onLoop([&] {
        cluster.ranks[rank]->pipeline->submit(
            {.operands = {{memory.data() + 2 * rank, 2, {}}}, .signature = {}, .done = [](const Error&) {}}, 0);
      });
    };
    submit(1);
    if (!isAside) submit(0);
    MessageHeader part = cluster.network.queues.at({1, 0}).front().messages.front().header;
    testing::Rank& rank = *cluster.ranks[0];
    rank.onLoop([&] {
      EXPECT_NE(rank.rails->place(1, part), nullptr);
      part.bytes = 0;
      rank.rails->arrived(1, part);
    });
    EXPECT_EQ(rank.errors.size(), 1U) << isAside;
  }
}

TEST(Ranks, AMessageOfAKindThatSlicesDoNotHaveIsRefused) {
  using Kind = PointToPointHeader::Kind;
  for (const Kind kind : {Kind::Eager, Kind::Announcement, Kind::Refusal, Kind{8}}) {
    for (const std::uint64_t bytes : {0, 8}) {
      Cluster cluster(Machines{{1, 1}}, 256 * kKiB, 64 * kKiB);
      testing::Rank& rank = *cluster.ranks[0];
      const MessageHeader header = onWire(PointToPointHeader{.kind = kind, .bytes = bytes});
      rank.onLoop([&] {
        if (bytes > 0) {
          EXPECT_EQ(rank.rails->place(1, header), nullptr);
        } else {
          rank.rails->arrived(1, header);
        }
      });
      EXPECT_EQ(rank.errors.size(), 1U) << static_cast<int>(kind) << ", " << bytes << " bytes";
    }
  }
}

}  // namespace
}  // namespace fairring
