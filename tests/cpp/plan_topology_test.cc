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
  const auto groups = [](int machines) { return onOneSite(std::vector<int>(machines, 1)).groups(); };
  EXPECT_EQ(groups(1), 0);
  EXPECT_EQ(groups(7), 0);
  EXPECT_EQ(groups(8), 2);
  EXPECT_EQ(groups(9), 3);
  EXPECT_EQ(groups(16), 4);
  EXPECT_EQ(groups(64), 8);
  EXPECT_EQ(groups(13), 2);  // of 6 and 7
  EXPECT_EQ(groups(255), 15);
  EXPECT_EQ(groups(1024), 32);
  const std::vector<int> ofOne(16, 1);
  EXPECT_EQ(onSites({ofOne, ofOne}).groups(), 0) << "sites are groups themselves";
}

TEST(Topology, InGroupsHasThemAsALevel) {
  const Topology topology = onOneSite({2, 1, 2, 1, 2, 1, 2, 1, 2, 1});
  const Topology grouped = topology.inGroups();
  EXPECT_EQ(topology.levels(), (std::vector<int>{0, 1}));
  EXPECT_EQ(grouped.levels(), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(grouped.groups(), 0);
  EXPECT_EQ(grouped.machinesOf(0), (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(grouped.machinesOf(1), (std::vector<int>{5, 6, 7, 8, 9}));
  EXPECT_EQ(grouped.ranksOf(3), topology.ranksOf(3));
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
