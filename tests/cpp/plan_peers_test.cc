// The ranks that a rank meets: in slices of every size, by every plan, and how many there are.
#include <gtest/gtest.h>

#include "plan/cost_rows.h"
#include "plan/partition.h"
#include "plan/planner.h"
#include "plan_machines.h"

namespace fairring {
namespace {

using Sites = std::vector<std::vector<int>>;

// Every rank that a rank meets above its machine in a slice.
std::set<int> metIn(const Layout& layout, int rank) {
  std::set<int> met;
  for (const LevelLayout& level : layout.levels) {
    if (level.level == 0) continue;
    for (const Rail& rail : level.rails) met.insert(rail.owners.begin(), rail.owners.end());
  }
  met.erase(rank);
  return met;
}

TEST(Peers, AreAllWhomSlicesOfAnySizeMeet) {
  const Sites table[] = {{{2, 2}},
                         {{8, 7}},
                         {{2}, {2}},
                         {{3, 2}, {4}},
                         {{6}, {2, 2, 2}},
                         {{16}, {4, 4, 4, 4}},
                         {{2, 1}, {3, 3, 3}, {1}},
                         {{4, 3}, {5, 2, 2}, {3, 1}}};
  for (const Sites& sites : table) {
    const Topology topology = onSites(sites);
    for (int rank = 0; rank < topology.world(); ++rank) {
      const std::set<int> peers = peersOf(topology, rank);
      for (const std::uint64_t bytes : {4, 64, 124, 192, 400, 684, 4000, 16'384, 39'892, 262'144, 399'964}) {
        for (const int peer : metIn(layoutSlice(topology, rank, bytes), rank)) {
          ASSERT_TRUE(peers.contains(peer))
              << topology.describe() << ", ranks " << rank << " and " << peer << ", bytes: " << bytes;
        }
      }
    }
  }
}

TEST(Peers, BetweenEqualSitesAreOneInEach) {
  const Topology topology = onSites({{2, 2}, {2, 2}, {2, 2}});
  for (int rank = 0; rank < topology.world(); ++rank) {
    int elsewhere = 0;
    for (const int peer : peersOf(topology, rank)) elsewhere += !topology.inOneSite(rank, peer);
    EXPECT_EQ(elsewhere, 2);
  }
}

TEST(Peers, OfALoneMachineAreOnAllOfTheOtherSitesMachines) {
  const Topology topology = onSites({{1, 1, 1}, {1}});  // ranks 0, 1, 2 and 3
  EXPECT_EQ(peersOf(topology, 3), (std::set<int>{0, 1, 2}));
}

Planner plannerOf(const std::vector<int>& ranks, const GroupingFrom& from = {}) {
  return {onOneSite(ranks, from), {50 << 20, 25 << 20, builtInRows("tcp", "tcp")}};
}

// Of every rank, or of about fifty.
std::size_t mostPeers(const Topology& topology) {
  const int world = topology.world();
  std::size_t most = 0;
  for (int rank = 0; rank < world; rank += std::max(1, world / 50))
    most = std::max(most, peersOf(topology, rank).size());
  return most;
}

std::size_t mostPeers(const std::vector<int>& ranks) { return mostPeers(plannerOf(ranks).leveled()); }

TEST(Peers, OfARankOnAThousandMachinesAreAtMost62) {
  EXPECT_EQ(mostPeers(std::vector<int>(63, 8)), 62U);
  EXPECT_EQ(mostPeers(std::vector<int>(256, 8)), 15U + 15);
  EXPECT_EQ(mostPeers(std::vector<int>(1024, 8)), 31U + 31);
}

// Where machines do not divide into groups of one size, there are two of some groups.
TEST(Peers, AreAtMost87OnAnyNumberOfEqualMachinesUpTo1024) {
  for (std::size_t machines = 65; machines <= 1024; machines += 7) {
    const Topology grouped = onOneSite(std::vector<int>(machines, 1)).inGroups();
    ASSERT_LE(mostPeers(grouped), machines <= 544 ? 62U : 87U) << machines << " machines";
  }
}

// Machines of several sites do not stand in groups.
TEST(Peers, OnSeveralSitesAreOneOfEachMachineAndOneOfEachOtherSite) {
  const std::vector<int> machines(100, 1);
  EXPECT_EQ(mostPeers(onSites({machines, machines})), 99U + 1);
}

// Of every plan that a planner may choose, by a walk over the rails of slices of many sizes.
TEST(Peers, InGroupsAreAllWhomAnyPlanMeetsAndAreMutual) {
  for (const std::vector<int>& ranks : {std::vector<int>(4, 2),
                                        {1, 1, 1, 1, 1, 1, 1},
                                        {2, 1, 2, 1, 2, 2},
                                        std::vector<int>(8, 1),
                                        std::vector<int>(12, 1),
                                        {3, 3, 2, 3, 3, 3, 3, 3, 3}}) {
    const Planner planner = plannerOf(ranks, kSmallGroups);
    ASSERT_TRUE(planner.topology().onlyInGroups());
    for (int rank = 0; rank < planner.topology().world(); ++rank) {
      const std::set<int> peers = planner.peersOf(rank);
      for (const int peer : peers) EXPECT_TRUE(planner.peersOf(peer).contains(rank)) << rank << " and " << peer;
      const auto expectMet = [&](const Layout& layout) {
        for (const int peer : metIn(layout, rank)) ASSERT_TRUE(peers.contains(peer)) << rank << " and " << peer;
      };
      for (const Forecast& one : planner.forecast(1 << 20)) {
        for (const std::uint64_t bytes : {4, 684, 16'384, 399'964}) expectMet(planner.layoutOf(one.plan, rank, bytes));
      }
      for (const Pattern pattern : {Pattern::Reduce, Pattern::Broadcast}) {
        const Plan plan = planner.choose(pattern, 1 << 20).plan;
        expectMet(planner.layoutOf(plan, rank, 399'964));
      }
      expectMet(planner.blocks().counts(planner.leveled(), rank));
    }
  }
}

TEST(Peers, ThereAreNoneOnOneMachine) { EXPECT_TRUE(peersOf(onOneSite({4}), 0).empty()); }

}  // namespace
}  // namespace fairring
