#include "plan/topology.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "plan_machines.h"

namespace fairring {
namespace {

TEST(Topology, OrdersMachinesAndSitesByTheirLowestRank) {
  const Topology topology({{"z", "north"}, {"a", "south"}, {"z", "north"}, {"m", "north"}, {"a", "south"}});
  EXPECT_EQ(topology.world(), 5);
  EXPECT_EQ(topology.machines(), 3);
  EXPECT_EQ(topology.sites(), 2);
  EXPECT_EQ(topology.ranksOf(0), (std::vector<int>{0, 2}));
  EXPECT_EQ(topology.ranksOf(1), (std::vector<int>{1, 4}));
  EXPECT_EQ(topology.ranksOf(2), (std::vector<int>{3}));
  EXPECT_EQ(topology.machinesOf(0), (std::vector<int>{0, 2}));
  EXPECT_EQ(topology.machinesOf(1), (std::vector<int>{1}));
}

TEST(Topology, KnowsEachRanksPlaceOnItsMachine) {
  const Topology topology({{"a", ""}, {"b", ""}, {"a", ""}});
  EXPECT_EQ(topology.machineOf(2), 0);
  EXPECT_EQ(topology.localIndexOf(2), 1);
  EXPECT_EQ(topology.localIndexOf(1), 0);
}

TEST(Topology, LeavesOutLevelsWithoutPeersButNeverTheMachine) {
  EXPECT_EQ(onOneSite({1}).levels(), (std::vector<int>{0}));
  EXPECT_EQ(onOneSite({4}).levels(), (std::vector<int>{0}));
  EXPECT_EQ(onOneSite({1, 1}).levels(), (std::vector<int>{0, 1}));
  EXPECT_EQ(onSites({{2}, {2}}).levels(), (std::vector<int>{0, 2}));
  EXPECT_EQ(onSites({{2}, {2, 2}}).levels(), (std::vector<int>{0, 1, 2}));
}

TEST(Topology, RefusesAMachineInTwoSitesAndNamesTheRanks) {
  try {
    Topology({{"a", "north"}, {"b", "north"}, {"a", "south"}});
    FAIL() << "nothing was thrown";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.error().kind(), ErrorKind::Configuration);
    EXPECT_EQ(failure.error().text(),
              "machine 'a' stands in two sites: rank 0 says 'north', rank 2 says 'south'; give all ranks of a machine "
              "the same site");
  }
}

TEST(Topology, PutsManyMachinesIntoGroupsThatSaveMessages) {
  using Groups = std::vector<int>;
  const auto groups = [](int machines) { return onOneSite(std::vector<int>(machines, 1)).groups(); };
  EXPECT_EQ(groups(1), Groups{});
  EXPECT_EQ(groups(7), Groups{});
  EXPECT_EQ(groups(8), Groups{2});
  EXPECT_EQ(groups(9), Groups{3});
  EXPECT_EQ(groups(16), Groups{4});
  EXPECT_EQ(groups(64), Groups{8});
  EXPECT_EQ(groups(13), Groups{2});  // of 6 and 7
  EXPECT_EQ(groups(255), Groups{15});
  const std::vector<int> ofOne(16, 1);
  EXPECT_EQ(onSites({ofOne, ofOne}).groups(), Groups{}) << "sites are groups themselves";
}

TEST(Topology, PutsVeryManyMachinesIntoClustersOfGroups) {
  const auto groups = [](int machines) { return onOneSite(std::vector<int>(machines, 1)).groups(); };
  EXPECT_EQ(groups(256), (std::vector{64, 8}));     // groups of 4, clusters of 8 groups
  EXPECT_EQ(groups(512), (std::vector{64, 8}));     // 8 and 8
  EXPECT_EQ(groups(1000), (std::vector{100, 10}));  // 10 and 10
  EXPECT_EQ(groups(1024), (std::vector{128, 16}));  // 8 and 8
  EXPECT_EQ(groups(1009).size(), 2) << "a prime number";
}

TEST(Topology, InGroupsHasThemAsALevel) {
  const Topology topology = onOneSite({2, 1, 2, 1, 2, 1, 2, 1, 2, 1});
  const Topology grouped = topology.inGroups();
  EXPECT_EQ(topology.levels(), (std::vector<int>{0, 1}));
  EXPECT_EQ(grouped.levels(), (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(grouped.groups().empty());
  EXPECT_EQ(grouped.machinesOf(0), (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(grouped.machinesOf(1), (std::vector<int>{5, 6, 7, 8, 9}));
  EXPECT_EQ(grouped.ranksOf(3), topology.ranksOf(3));
}

TEST(Topology, InGroupsHasTheirClustersAsAnotherLevel) {
  const Topology grouped = onOneSite(std::vector<int>(512, 2)).inGroups();
  EXPECT_EQ(grouped.levels(), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(grouped.sites(), 64);
  EXPECT_EQ(grouped.clusters(), 8);
  EXPECT_EQ(grouped.sitesOf(1), (std::vector<int>{8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(grouped.machinesOf(9), (std::vector<int>{72, 73, 74, 75, 76, 77, 78, 79}));
  EXPECT_EQ(grouped.clusterOf(grouped.siteOf(79)), 1);
}

TEST(Topology, RefusesAGroupOfNoRanks) { EXPECT_THROW(Topology({}), Failure); }

TEST(Topology, DescribesItselfForMessages) {
  EXPECT_EQ(onOneSite({4}).describe(), "1 machine of 4 ranks");
  EXPECT_EQ(onOneSite({4, 3}).describe(), "2 machines of (4, 3) ranks");
  EXPECT_EQ(onOneSite({8, 8, 8}).describe(), "3 machines of 8 ranks");
  EXPECT_EQ(onSites({{4, 4}, {4}}).describe(), "2 sites of (2, 1) machines, 3 machines of 4 ranks");
}

}  // namespace
}  // namespace fairring
