#include "plan/peers.h"

#include <gtest/gtest.h>

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

TEST(Peers, AreAllWhomSlicesOfAnySizeAndTurnMeet) {
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
    for (const FewOwners& few : {FewOwners{}, {1, 1}, {1, 2}, {2, 1}}) {
      if (few.shards > 0 && topology.levels()[1] > few.level) continue;
      for (int rank = 0; rank < topology.world(); ++rank) {
        const std::set<int> peers = peersOf(topology, rank, {few});
        for (std::uint64_t turn = 0; turn < turnsOf(topology, few); ++turn) {
          for (const std::uint64_t elements : {1, 16, 31, 48, 100, 171, 1000, 4096, 9973, 65'536, 99'991}) {
            const Layout layout = layoutSlice(topology, rank, elements, 4, {few.level, few.shards, turn});
            for (const int peer : metIn(layout, rank)) {
              ASSERT_TRUE(peers.contains(peer)) << topology.describe() << ", ranks " << rank << " and " << peer
                                                << ", elements: " << elements << ", turn " << turn;
            }
          }
        }
      }
    }
  }
}

TEST(Peers, BetweenEqualSitesAreOneInEach) {
  const Topology topology = onSites({{2, 2}, {2, 2}, {2, 2}});
  for (int rank = 0; rank < topology.world(); ++rank) {
    int elsewhere = 0;
    for (const int peer : peersOf(topology, rank, {{}, {1, 1}, {2, 1}})) elsewhere += !topology.inOneSite(rank, peer);
    EXPECT_EQ(elsewhere, 2);
  }
}

TEST(Peers, OfALoneMachineAreOnAllOfTheOtherSitesMachines) {
  const Topology topology = onSites({{1, 1, 1}, {1}});  // ranks 0, 1, 2 and 3
  EXPECT_EQ(peersOf(topology, 3, {{}}), (std::set<int>{0, 1, 2}));
}

TEST(Peers, ThereAreNoneOnOneMachine) { EXPECT_TRUE(peersOf(onOneSite({4}), 0, {{}}).empty()); }

}  // namespace
}  // namespace fairring
