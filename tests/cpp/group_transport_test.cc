// The transport that a group derives from all ranks' facts.
#include <gtest/gtest.h>

#include "base/error.h"
#include "group/transport_choice.h"
#include "plan/topology.h"

namespace fairring {
namespace {

constexpr const char* kFabric = "RoCE 10.77.0.0/24";

RankFacts factsOf(const std::string& machine, const std::string& fabric = kFabric, const std::string& obstacle = "",
                  const std::string& site = "") {
  return {{machine, site}, "host-of-" + machine, {"10.77.0.1"}, 1234, "same", fabric, obstacle, {}};
}

TransportChoice chosen(const TransportSettings& settings, const std::vector<RankFacts>& facts) {
  Transport uv;
  uv.name = "uv";
  Transport ibv;
  ibv.name = "ibv";
  ibv.isRdma = true;
  return chooseTransport(settings, facts, {tcpTransport(), uv, ibv});
}

TEST(TransportChoice, AutoTakesRdmaWhereEveryRankCan) {
  const TransportChoice choice = chosen({.rail = "auto"}, {factsOf("a"), factsOf("a"), factsOf("b")});
  EXPECT_EQ(choice.transports.rail.name, "ibv");
  EXPECT_EQ(choice.rdmaRefused, "");
  EXPECT_TRUE(choice.transports.rail.tcpAfter) << "two ranks that it does not connect take TCP";
}

TEST(TransportChoice, AutoTakesTcpWhereOneRankCannotAndSaysWhich) {
  const TransportChoice choice = chosen({.rail = "auto"}, {factsOf("a"), factsOf("b", kFabric, "its port 1 is DOWN")});
  EXPECT_EQ(choice.transports.rail.name, "tcp");
  EXPECT_EQ(choice.rdmaRefused, "rank 1 (host-of-b): its port 1 is DOWN");
  EXPECT_TRUE(choice.rdmaIsThere);
}

TEST(TransportChoice, MachinesWithoutDevicesAreNoNews) {
  const TransportChoice choice = chosen({.rail = "auto"}, {factsOf("a", "", "none"), factsOf("b", "", "none")});
  EXPECT_EQ(choice.transports.rail.name, "tcp");
  EXPECT_FALSE(choice.rdmaIsThere);
}

TEST(TransportChoice, AutoTakesTcpBetweenDifferentFabrics) {
  const TransportChoice choice = chosen({.rail = "auto"}, {factsOf("a"), factsOf("b", "RoCE 10.78.0.0/24")});
  EXPECT_EQ(choice.transports.rail.name, "tcp");
  EXPECT_NE(choice.rdmaRefused.find("10.78.0.0/24"), std::string::npos);
}

TEST(TransportChoice, OneMachineNeedsNoneAndSaysNothing) {
  EXPECT_EQ(chosen({.rail = "auto"}, {factsOf("a", "", "none"), factsOf("a", "", "none")}).transports.rail.name, "tcp");
  EXPECT_EQ(chosen({.rail = "auto"}, {factsOf("a", "", "none")}).rdmaRefused, "");
  EXPECT_EQ(chosen({.rail = "ibv"}, {factsOf("a", "", "none")}).transports.rail.name, "ibv");
}

TEST(TransportChoice, WhatWasAskedForIsTaken) {
  const std::vector<RankFacts> facts{factsOf("a"), factsOf("b")};
  EXPECT_EQ(chosen({.rail = "tcp"}, facts).transports.rail.name, "tcp");
  EXPECT_EQ(chosen({.rail = "uv"}, facts).transports.rail.name, "uv");
  EXPECT_EQ(chosen({.rail = "ibv"}, facts).transports.rail.name, "ibv");
  EXPECT_FALSE(chosen({.rail = "ibv"}, facts).transports.rail.tcpAfter);
}

TEST(TransportChoice, AutoTakesTheFirstForRdmaAndOthersIfTheyAreNamed) {
  Transport verbs;
  verbs.name = "verbs";
  Transport ibv;
  ibv.name = "ibv";
  verbs.isRdma = ibv.isRdma = true;
  const std::vector<Transport> all{tcpTransport(), verbs, ibv};
  const std::vector<RankFacts> facts{factsOf("a"), factsOf("b")};
  EXPECT_EQ(automaticRdma(all).name, "verbs");
  EXPECT_EQ(chooseTransport({}, facts, all).transports.rail.name, "verbs");
  EXPECT_EQ(chooseTransport({.rail = "ibv"}, facts, all).transports.rail.name, "ibv");
  EXPECT_EQ(chooseTransport({.rail = "verbs"}, facts, all).transports.rail.name, "verbs");
}

TEST(TransportChoice, RdmaThatWasAskedForAndIsNotThereIsAnErrorThatSaysWhatIsMissing) {
  try {
    chosen({.rail = "ibv"}, {factsOf("a"), factsOf("b", "", "no InfiniBand or RoCE device is here")});
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.error().kind(), ErrorKind::Configuration);
    for (const char* word : {"tensorpipe:ibv", "rank 1 (host-of-b)", "no InfiniBand"}) {
      EXPECT_NE(std::string(failure.what()).find(word), std::string::npos) << failure.what();
    }
  }
}

TEST(TransportChoice, SitesNeedNoFabricInCommonAndTakeTcpBetweenThem) {
  const std::vector<RankFacts> facts{
      factsOf("a", "InfiniBand 1", "", "north"), factsOf("b", "InfiniBand 1", "", "north"),
      factsOf("c", "InfiniBand 2", "", "south"), factsOf("d", "InfiniBand 2", "", "south")};
  const TransportChoice choice = chosen({}, facts);
  EXPECT_EQ(choice.transports.rail.name, "ibv");
  EXPECT_EQ(choice.transports.site.name, "tcp");
  EXPECT_EQ(choice.rdmaRefused, "");
  EXPECT_EQ(chosen({"tcp", "uv"}, facts).transports.site.name, "uv");
  EXPECT_THROW(chosen({"auto", "ibv"}, facts), Failure) << "these are two fabrics";
}

TEST(TransportChoice, ASiteOfOneMachineNeedsNoRdma) {
  const TransportChoice choice =
      chosen({}, {factsOf("a", kFabric, "", "north"), factsOf("b", kFabric, "", "north"),
                  factsOf("c", "", "no device", "south"), factsOf("c", "", "no device", "south")});
  EXPECT_EQ(choice.transports.rail.name, "ibv");
}

TEST(RankFacts, TravelAsText) {
  RankFacts sent = factsOf("a", kFabric, "two\nlines");
  const auto travelled = [&sent] { return fromText<RankFacts>(toText(sent)).value(); };
  EXPECT_TRUE(travelled().siteAddresses.empty());
  sent.siteAddresses = {"10.1.0.1", "10.2.0.1"};
  sent.device = {"nvlink-1", "no driver", "mlx5_0 (efa)"};
  sent.network = "a namespace";
  sent.interfacesBy = "TP_SOCKET_IFNAME=eth0";
  const RankFacts got = travelled();
  EXPECT_EQ(got.network, "a namespace");
  EXPECT_EQ(got.interfacesBy, "TP_SOCKET_IFNAME=eth0");
  EXPECT_EQ(got.rdmaFabric, kFabric);
  EXPECT_EQ(got.addressesFrom(""), sent.addresses);
  EXPECT_EQ(got.addressesFrom("south"), sent.siteAddresses);
  EXPECT_EQ(got.rdmaObstacle, "two\nlines");
  EXPECT_EQ(got.settings, "same");
  EXPECT_EQ(got.device.machine, "nvlink-1");
  EXPECT_EQ(got.device.obstacle, "no driver");
  EXPECT_EQ(got.device.fabric, "mlx5_0 (efa)");
}

// Ranks of machines a, b, ..., each in a network namespace of its own, that listen on these addresses.
std::vector<RankFacts> listeningOn(const std::vector<std::string>& addresses) {
  std::vector<RankFacts> facts;
  for (const std::string& address : addresses) {
    RankFacts one = factsOf(std::string(1, static_cast<char>('a' + facts.size())));
    one.network = one.place.machine;
    one.addresses = {address};
    one.interfacesBy = concat("by the test ", facts.size());
    facts.push_back(std::move(one));
  }
  return facts;
}

std::string complaintAbout(const std::vector<RankFacts>& facts) {
  try {
    checkAddresses(facts);
  } catch (const Failure& failure) {
    return failure.what();
  }
  return {};
}

TEST(RankFacts, OnLoopbackAreRefusedWhereARankIsElsewhere) {
  for (const char* const other : {"127.0.0.1", "10.0.0.1"}) {
    const std::string told = complaintAbout(listeningOn({"127.0.0.1", other}));
    EXPECT_NE(told.find("rank 0 ("), std::string::npos) << told;
    EXPECT_NE(told.find("listens on 127.0.0.1 (by the test 0), which other machines can't reach"), std::string::npos)
        << told;
  }
  EXPECT_EQ(complaintAbout(listeningOn({"127.0.0.1"})), "");
  EXPECT_EQ(complaintAbout(listeningOn({"10.0.0.1", "10.0.0.2"})), "");
}

TEST(RankFacts, OfOneNetworkNamespaceReachEachOtherOnLoopback) {
  std::vector<RankFacts> facts = listeningOn({"127.0.0.1", "127.0.0.1", "10.0.0.1"});
  for (RankFacts& one : facts) one.network = "the same";
  EXPECT_EQ(complaintAbout(facts), "");
}

TEST(RankFacts, WithTheAddressOfAnotherMachineAreRefused) {
  std::vector<RankFacts> facts = listeningOn({"172.17.0.1", "10.0.0.2", "172.17.0.1"});
  const std::string told = complaintAbout(facts);
  EXPECT_NE(told.find("rank 2 ("), std::string::npos) << told;
  EXPECT_NE(told.find("which other machines can't reach: rank 0 ("), std::string::npos) << told;
  facts[2].place.site = "south";
  EXPECT_EQ(complaintAbout(facts), "") << "private networks of two sites may number alike";
}

TEST(RankFacts, WithoutAPlaceToConnectToAreNone) {
  RankFacts facts = factsOf("a");
  for (const int port : {-1, 0, 65'536}) {
    facts.port = port;
    EXPECT_FALSE(fromText<RankFacts>(toText(facts))) << port;
  }
  facts = factsOf("a");
  facts.addresses.clear();
  EXPECT_FALSE(fromText<RankFacts>(toText(facts)));
}

TEST(RankFacts, JoinMachinesForCallsOnADeviceAndSplitNone) {
  std::vector<RankFacts> facts{factsOf("a"), factsOf("b"), factsOf("a"), factsOf("c"), factsOf("d")};
  facts[0].device.machine = facts[1].device.machine = "nvlink-1";
  facts[2].device.machine = "of its own, though it shares memory with rank 0";
  facts[4].device.machine = "nvlink-2";
  std::vector<std::string> machines;
  for (const Place& place : devicePlacesOf(facts)) machines.push_back(place.machine);
  EXPECT_EQ(machines, (std::vector<std::string>{"nvlink-1", "nvlink-1", "nvlink-1", "c", "nvlink-2"}));
}

TEST(RankFacts, TellDevicesOfOneHostApartByTheirSites) {
  std::vector<RankFacts> facts{factsOf("a"), factsOf("b")};
  facts[0].device.machine = facts[1].device.machine = "host";
  facts[0].place.site = "north";
  facts[1].place.site = "south";
  EXPECT_EQ(Topology(devicePlacesOf(facts)).machines(), 2) << "a machine in two sites would be refused";
}

TEST(RankFacts, TellWhichRankHasNoUsableDevice) {
  std::vector<RankFacts> facts{factsOf("a"), factsOf("b")};
  EXPECT_EQ(deviceObstacle(facts), "");
  facts[1].device.obstacle = "it is too old";
  EXPECT_EQ(deviceObstacle(facts), "rank 1 (host-of-b): it is too old");
}

TEST(RankFacts, TellWhichRanksDevicesANetworkReaches) {
  std::vector<RankFacts> facts{factsOf("a"), factsOf("b")};
  EXPECT_EQ(deviceFabric(facts), "");
  facts[1].device.fabric = "mlx5_0 (nvidia_peermem)";
  EXPECT_EQ(deviceFabric(facts).find("rank 1 (host-of-b): NCCL has a network there"), 0);
  EXPECT_NE(deviceFabric(facts).find("mlx5_0 (nvidia_peermem)"), std::string::npos);
}

TEST(RankFacts, TellWhichDeviceIsTooSmallForNcclsKernelsOfTheGroup) {
  std::vector<RankFacts> facts{factsOf("a"), factsOf("b")};
  facts[0].device.multiprocessors = 132;
  facts[1].device.multiprocessors = 23;
  EXPECT_EQ(tooSmallDevice(facts, 24), "") << "a rank that is alone on its machine has no such kernels";
  facts[0].device.machine = facts[1].device.machine = "nvlink-1";
  EXPECT_EQ(tooSmallDevice(facts, 24).find("rank 1 (host-of-b): a device of its has 23 multiprocessors"), 0);
  facts[1].device.multiprocessors = 24;
  EXPECT_EQ(tooSmallDevice(facts, 24), "");
}

}  // namespace
}  // namespace fairring
