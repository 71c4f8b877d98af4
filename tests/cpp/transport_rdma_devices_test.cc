// RDMA devices as the system describes them, in directories made for the test.
#include "transport/rdma_devices.h"

#include <gtest/gtest.h>

#include "rdma_directories.h"
#include "transport/rdma_offer.h"

namespace fairring {
namespace {

constexpr std::uint64_t kPlenty = 1ULL << 40;

class RdmaDevices : public RdmaDirectories {
 protected:
  std::string obstacle(const std::string& name) const {
    for (const RdmaDevice& found : rdmaDevices(sources_)) {
      if (found.name == name) return found.obstacle;
    }
    return "not found";
  }
  RdmaOffer offer(const std::string& first, std::optional<std::uint64_t> lockable = kPlenty,
                  bool library = true) const {
    return rdmaOffer(rdmaDevices(sources_), {library, first, {lockable}}, 1);
  }
};

TEST_F(RdmaDevices, AMachineWithoutAnyOffersNone) {
  EXPECT_TRUE(rdmaDevices(sources_).empty());
  EXPECT_EQ(offer("").fabric, "");
  expectSays(offer("").obstacle, {"no InfiniBand or RoCE device"});
}

TEST_F(RdmaDevices, OneThatWorksIsDescribedAndOffered) {
  add("mlx5_0", 0);
  const std::vector<RdmaDevice> devices = rdmaDevices(sources_);
  ASSERT_EQ(devices.size(), 1U);
  EXPECT_EQ(devices[0].driver, "mlx5_core");
  EXPECT_EQ(devices[0].linkLayer, "Ethernet");
  EXPECT_EQ(devices[0].netdev, "lo");
  EXPECT_EQ(devices[0].rate, "100 Gb/sec (4X EDR)");
  EXPECT_EQ(devices[0].gid, kGid);
  EXPECT_EQ(devices[0].fabric, "RoCE 127.0.0.0/8");
  EXPECT_EQ(devices[0].obstacle, "");
  EXPECT_EQ(offer("mlx5_0").device, "mlx5_0");
  EXPECT_EQ(offer("mlx5_0").obstacle, "");
}

TEST_F(RdmaDevices, APortThatIsDownIsAnObstacle) {
  add("mlx5_0", 0);
  port("mlx5_0", "state", "1: DOWN\n");
  port("mlx5_0", "phys_state", "3: Disabled\n");
  expectSays(obstacle("mlx5_0"), {"port 1 is DOWN (Disabled)", "ip link set up"});
  expectSays(offer("mlx5_0").obstacle, {"mlx5_0 can't be used"});
  EXPECT_EQ(offer("mlx5_0").device, "");
}

TEST_F(RdmaDevices, AnEmptyGidIsAnObstacle) {
  add("mlx5_0", 0);
  port("mlx5_0", "gids/0", "0000:0000:0000:0000:0000:0000:0000:0000\n");
  expectSays(obstacle("mlx5_0"), {"GID 0 is empty"});
}

TEST_F(RdmaDevices, RoceNeedsItsGidAsAnAddressThatIsReady) {
  add("rxe0", 0);
  write("if_inet6", "fe80000000000000505400fffe770001 02 40 20 80     eth1\n");
  expectSays(obstacle("rxe0"), {"is no IPv6 address of lo", "disable_ipv6"});
  write("if_inet6", "fe80000000000000505400fffe770001 02 40 20 c0     lo\n");  // tentative
  expectSays(obstacle("rxe0"), {"is no IPv6 address of lo"});
  write("if_inet6", "fe80000000000000505400fffe770001 02 40 20 80     lo\n");
  EXPECT_EQ(obstacle("rxe0"), "");
}

TEST_F(RdmaDevices, InfiniBandNeedsNoAddressAndItsFabricIsItsSubnet) {
  add("mlx5_0", 0);
  port("mlx5_0", "link_layer", "InfiniBand\n");
  port("mlx5_0", "gids/0", "fec0:0000:0000:0007:506b:4b03:00cb:dd26\n");
  EXPECT_EQ(obstacle("mlx5_0"), "");
  EXPECT_EQ(offer("mlx5_0").fabric, "InfiniBand fec0:0000:0000:0007");
}

TEST_F(RdmaDevices, WhatPosesAsInfiniBandIsAnObstacle) {
  add("rdmap0s6", 0, "efa");
  device("rdmap0s6", "node_type", "7: unspecified\n");
  add("iwarp", 1, "siw");
  device("iwarp", "node_type", "4: RNIC\n");
  add("efa_as_ca", 2, "efa");
  expectSays(obstacle("rdmap0s6"), {"no InfiniBand or RoCE device", "unspecified", "efa"});
  expectSays(obstacle("iwarp"), {"RNIC"});
  expectSays(obstacle("efa_as_ca"), {"efa"});
}

TEST_F(RdmaDevices, ADeviceThatNoProgramReachesIsAnObstacle) {
  add("mlx5_0", 0);
  fs::remove(root_ / "dev/uverbs0");
  expectSays(obstacle("mlx5_0"), {"dev/uverbs0 can't be opened", "container"});
  fs::remove_all(root_ / "class/infiniband_verbs");
  expectSays(obstacle("mlx5_0"), {"ib_uverbs"});
}

TEST_F(RdmaDevices, OfSeveralLibibverbsFirstDecides) {
  add("mlx5_0", 0);
  add("mlx5_1", 1);
  port("mlx5_1", "state", "1: DOWN\n");
  EXPECT_EQ(offer("mlx5_0").device, "mlx5_0");  // the other may be down
  const RdmaOffer refused = offer("mlx5_1");
  EXPECT_EQ(refused.device, "");
  expectSays(refused.obstacle, {"mlx5_1 can't be used", "DOWN", "others work", "libibverbs' first"});
}

TEST_F(RdmaDevices, WhatTheProcessLacksIsAnObstacle) {
  add("mlx5_0", 0);
  expectSays(offer("mlx5_0", kPlenty, false).obstacle, {"libibverbs.so.1", "rdma-core"});
  expectSays(offer("").obstacle, {"libibverbs can't use mlx5_0", "ibverbs-providers"});
  expectSays(offer("mlx5_0", 8 << 20).obstacle, {"8388608 B", std::to_string(rdmaLockedBytes(1)), "ulimit -l"});
  EXPECT_EQ(offer("mlx5_0", std::nullopt).obstacle, "");
  EXPECT_LT(rdmaLockedBytes(1), rdmaLockedBytes(2));
}

}  // namespace
}  // namespace fairring
