// Ports of RDMA devices as the system describes them, in directories made for the test, and the choice between them.
#include "transport/rdma_ports.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "rdma_directories.h"

namespace fairring {
namespace {

constexpr std::uint64_t kStaging = 54 << 20;

class RdmaPorts : public RdmaDirectories {
 protected:
  RdmaPort only() const {
    const std::vector<RdmaPort> ports = rdmaPorts(sources_);
    EXPECT_EQ(ports.size(), 1U);
    return ports.at(0);
  }
  void gid(const std::string& name, int index, const std::string& text, const std::string& type = "RoCE v2") const {
    const std::string number = std::to_string(index);
    port(name, "gids/" + number, text + "\n");
    port(name, "gid_attrs/types/" + number, type + "\n");
    port(name, "gid_attrs/ndevs/" + number, "lo\n");
  }
};

TEST_F(RdmaPorts, AnIpv4AddressComesBeforeIpv6AndThatBeforeLinkLocal) {
  add("mlx5_0", 0);
  EXPECT_EQ(only().gidIndex, 0);
  EXPECT_EQ(only().fabric, "RoCE 127.0.0.0/8");
  write("if_inet6",
        "fe80000000000000505400fffe770001 02 40 20 80     lo\n20010db8000000000000000000000001 02 40 00 80     lo\n");
  gid("mlx5_0", 1, "2001:0db8:0000:0000:0000:0000:0000:0001");
  EXPECT_EQ(only().gidIndex, 1);
  EXPECT_EQ(only().fabric, "RoCE 2001:0db8:0000:0000");
  gid("mlx5_0", 2, "0000:0000:0000:0000:0000:ffff:7f00:0001", "IB/RoCE v1");
  EXPECT_EQ(only().gidIndex, 1) << "that is not RoCE v2";
  gid("mlx5_0", 3, "0000:0000:0000:0000:0000:ffff:7f00:0001");
  EXPECT_EQ(only().gidIndex, 3);
  EXPECT_EQ(only().gidBytes[12], 127);
  EXPECT_EQ(only().fabric, "RoCE 127.0.0.0/8");
  EXPECT_EQ(only().obstacle, "");
}

TEST_F(RdmaPorts, AGidWhoseIndexNeedsMoreThan8BitsIsNotTaken) {
  add("mlx5_0", 0);
  write("if_inet6", "");
  gid("mlx5_0", 256, "0000:0000:0000:0000:0000:ffff:7f00:0001");
  expectSays(only().obstacle, {"no GID of RoCE v2, of index 255 or less"});
  gid("mlx5_0", 255, "0000:0000:0000:0000:0000:ffff:7f00:0001");
  EXPECT_EQ(only().gidIndex, 255);
  EXPECT_EQ(only().obstacle, "");
}

TEST_F(RdmaPorts, WithoutAnAddressThatIsReadyThereIsNoGid) {
  add("rxe0", 0);
  write("if_inet6", "fe80000000000000505400fffe770001 02 40 20 c0     lo\n");  // tentative
  expectSays(only().obstacle, {"no GID of RoCE v2", "lo", "give that interface an IP address"});
  add("rxe0", 0);
  gid("rxe0", 0, kGid, "IB/RoCE v1");
  expectSays(only().obstacle, {"no GID of RoCE v2"});
}

TEST_F(RdmaPorts, InfiniBandHasGid0AndItsSubnetForAFabric) {
  add("mlx5_0", 0);
  port("mlx5_0", "link_layer", "InfiniBand\n");
  port("mlx5_0", "gids/0", "fec0:0000:0000:0007:506b:4b03:00cb:dd26\n");
  EXPECT_EQ(only().fabric, "InfiniBand fec0:0000:0000:0007");
  EXPECT_EQ(only().gidIndex, 0);
  EXPECT_EQ(only().obstacle, "");
}

TEST_F(RdmaPorts, OtherPortsAreTakenWhereTheFirstIsDown) {
  add("mlx5_0", 0);
  add("mlx5_0", 0, "mlx5_core", 2);
  port("mlx5_0", "state", "1: DOWN\n");
  port("mlx5_0", "phys_state", "3: Disabled\n");
  const std::vector<RdmaPort> ports = rdmaPorts(sources_);
  ASSERT_EQ(ports.size(), 2U);
  expectSays(ports[0].obstacle, {"it is DOWN (Disabled)", "ip link set up"});
  const std::vector<RdmaPort> nearest = nearestPorts(ports, {0});
  ASSERT_EQ(nearest.size(), 1U);
  EXPECT_EQ(nearest[0].name(), "mlx5_0, port 2");
}

TEST_F(RdmaPorts, OtherDevicesThanInfiniBandAndRoceAreObstacles) {
  add("rdmap0s6", 0, "efa");
  device("rdmap0s6", "node_type", "7: unspecified\n");
  expectSays(only().obstacle, {"no InfiniBand or RoCE device", "unspecified"});
}

std::vector<std::string> namesOf(const std::vector<RdmaPort>& ports) {
  std::vector<std::string> names;
  for (const RdmaPort& port : ports) names.push_back(port.device);
  return names;
}

TEST_F(RdmaPorts, TheNearestPortsAreTakenThenTheFastestOnOneFabric) {
  using Names = std::vector<std::string>;
  for (int node = 0; node < 4; ++node) {
    const std::string name = "mlx5_" + std::to_string(node);
    add(name, node);
    device(name, "device/numa_node", std::to_string(node / 2) + "\n");
  }
  EXPECT_EQ(namesOf(nearestPorts(rdmaPorts(sources_), {0})), (Names{"mlx5_0", "mlx5_1"}));
  EXPECT_EQ(namesOf(nearestPorts(rdmaPorts(sources_), {1})), (Names{"mlx5_2", "mlx5_3"}));
  EXPECT_EQ(nearestPorts(rdmaPorts(sources_), {0, 1}).size(), 4U);
  EXPECT_EQ(nearestPorts(rdmaPorts(sources_), {7}).size(), 4U) << "none is near";
  port("mlx5_0", "rate", "25 Gb/sec (1X EDR)\n");
  EXPECT_EQ(namesOf(nearestPorts(rdmaPorts(sources_), {0})), (Names{"mlx5_1"}));
  port("mlx5_3", "link_layer", "InfiniBand\n");
  EXPECT_EQ(namesOf(nearestPorts(rdmaPorts(sources_), {1})), (Names{"mlx5_2"}));
  port("mlx5_2", "state", "1: DOWN\n");
  EXPECT_EQ(namesOf(nearestPorts(rdmaPorts(sources_), {1})), (Names{"mlx5_3"}));
}

TEST_F(RdmaPorts, RanksTakeTurnsOnThePortsOfThePublishedFabric) {
  for (int node = 0; node < 3; ++node) {
    const std::string name = "mlx5_" + std::to_string(node);
    add(name, node);
    port(name, "link_layer", "InfiniBand\n");
    port(name, "gids/0", (node == 0 ? "fec0:0000:0000:0001:" : "fec0:0000:0000:0002:") + std::string("0:0:0:1\n"));
  }
  const auto taken = [&](int localIndex, const std::string& fabric) {
    return nearestPort(rdmaPorts(sources_), {0}, localIndex, "InfiniBand " + fabric).device;
  };
  EXPECT_EQ(taken(0, "fec0:0000:0000:0002"), "mlx5_1");
  EXPECT_EQ(taken(1, "fec0:0000:0000:0002"), "mlx5_2");
  EXPECT_EQ(taken(1, "fec0:0000:0000:0001"), "mlx5_0");
  EXPECT_THROW(taken(0, "fec0:0000:0000:0003"), Failure);
  for (const char* name : {"mlx5_0", "mlx5_1", "mlx5_2"}) port(name, "gids/0", "fe80:0000:0000:0000:0:0:0:1\n");
  EXPECT_EQ(taken(0, "fe80:0000:0000:0000"), "mlx5_0");
  EXPECT_EQ(taken(1, "fe80:0000:0000:0000"), "mlx5_0") << "two fabrics may have that prefix";
}

TEST(PlaceOnMachine, IsThatInTheGroupWithTheMostRanksHere) {
  PlaceOnMachine place;
  EXPECT_EQ(place.in(1, 0, 13), 13) << "nothing else is known";
  EXPECT_EQ(place.in(2, 1, 13), 1);
  EXPECT_EQ(place.in(8, 5, 13), 5);
  EXPECT_EQ(place.in(2, 1, 13), 5);
  EXPECT_EQ(place.in(8, 2, 13), 5) << "the first of them";
  EXPECT_EQ(place.in(1, 0, 13), 5);
}

TEST_F(RdmaPorts, WhatTheProcessLacksIsAnObstacle) {
  const auto offer = [&](const std::vector<std::string>& devices, std::optional<std::uint64_t> lockable, int peers = 1,
                         bool library = true) {
    return verbsOffer(rdmaPorts(sources_), {0}, {library, "", {lockable}, devices}, peers, kStaging);
  };
  expectSays(offer({}, std::nullopt).obstacle, {"no InfiniBand or RoCE device"});
  add("mlx5_0", 0);
  EXPECT_EQ(offer({"mlx5_0"}, std::nullopt).obstacle, "");
  EXPECT_EQ(offer({"mlx5_0"}, std::nullopt).device, "mlx5_0");
  expectSays(offer({"mlx5_0"}, std::nullopt, 1, false).obstacle, {"libibverbs.so.1", "rdma-core"});
  expectSays(offer({"mlx4_0"}, std::nullopt).obstacle, {"libibverbs can't use mlx5_0", "ibverbs-providers"});
  expectSays(offer({"mlx5_0"}, kStaging).obstacle, {std::to_string(kStaging) + " B", "ulimit -l"});
  EXPECT_EQ(offer({"mlx5_0"}, 64 << 20).obstacle, "");
  EXPECT_NE(offer({"mlx5_0"}, 64 << 20, 100).obstacle, "");
  port("mlx5_0", "state", "1: DOWN\n");
  expectSays(offer({"mlx5_0"}, std::nullopt).obstacle, {"mlx5_0, port 1 can't be used: it is DOWN"});
}

}  // namespace
}  // namespace fairring
