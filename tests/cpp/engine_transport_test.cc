// Which transport a group takes from what all its ranks say.
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/transport_choice.h"

namespace fairring {
namespace {

constexpr const char* kFabric = "RoCE 10.77.0.0/24";

RankFacts factsOf(const std::string& machine, const std::string& fabric = kFabric, const std::string& obstacle = "") {
  return {{machine, ""}, "host-of-" + machine, {"10.77.0.1"}, 1234, "same", fabric, obstacle};
}

TEST(TransportChoice, AutoTakesRdmaWhereEveryRankCan) {
  const TransportChoice choice = chooseTransport("auto", {factsOf("a"), factsOf("a"), factsOf("b")});
  EXPECT_EQ(choice.transport.name(), "ibv");
  EXPECT_EQ(choice.rdmaRefused, "");
}

TEST(TransportChoice, AutoTakesTcpWhereOneRankCannotAndSaysWhich) {
  const TransportChoice choice = chooseTransport("auto", {factsOf("a"), factsOf("b", kFabric, "its port 1 is DOWN")});
  EXPECT_EQ(choice.transport.name(), "tcp");
  EXPECT_EQ(choice.rdmaRefused, "rank 1 (host-of-b): its port 1 is DOWN");
  EXPECT_TRUE(choice.rdmaIsThere);
}

TEST(TransportChoice, MachinesWithoutDevicesAreNoNews) {
  const TransportChoice choice = chooseTransport("auto", {factsOf("a", "", "none"), factsOf("b", "", "none")});
  EXPECT_EQ(choice.transport.name(), "tcp");
  EXPECT_FALSE(choice.rdmaIsThere);
}

TEST(TransportChoice, AutoTakesTcpBetweenDifferentFabrics) {
  const TransportChoice choice = chooseTransport("auto", {factsOf("a"), factsOf("b", "RoCE 10.78.0.0/24")});
  EXPECT_EQ(choice.transport.name(), "tcp");
  EXPECT_NE(choice.rdmaRefused.find("10.78.0.0/24"), std::string::npos);
}

TEST(TransportChoice, OneMachineNeedsNoneAndSaysNothing) {
  EXPECT_EQ(chooseTransport("auto", {factsOf("a", "", "none"), factsOf("a", "", "none")}).transport.name(), "tcp");
  EXPECT_EQ(chooseTransport("auto", {factsOf("a", "", "none")}).rdmaRefused, "");
  EXPECT_EQ(chooseTransport("ibv", {factsOf("a", "", "none")}).transport.name(), "ibv");
}

TEST(TransportChoice, WhatWasAskedForIsTaken) {
  const std::vector<RankFacts> facts{factsOf("a"), factsOf("b")};
  EXPECT_EQ(chooseTransport("tcp", facts).transport.name(), "tcp");
  EXPECT_EQ(chooseTransport("uv", facts).transport.name(), "uv");
  EXPECT_EQ(chooseTransport("ibv", facts).transport.name(), "ibv");
}

TEST(TransportChoice, RdmaThatWasAskedForAndIsNotThereIsAnErrorThatSaysWhatIsMissing) {
  try {
    chooseTransport("ibv", {factsOf("a"), factsOf("b", "", "no InfiniBand or RoCE device is here")});
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.error().kind(), ErrorKind::Configuration);
    for (const char* word : {"tensorpipe:ibv", "rank 1 (host-of-b)", "no InfiniBand"}) {
      EXPECT_NE(std::string(failure.what()).find(word), std::string::npos) << failure.what();
    }
  }
}

TEST(RankFacts, TravelAsText) {
  const RankFacts sent = factsOf("a", kFabric, "two\nlines");
  const RankFacts got = decodeFacts(encode(sent));
  EXPECT_EQ(got.rdmaFabric, kFabric);
  EXPECT_EQ(got.rdmaObstacle, "two lines");
  EXPECT_EQ(got.settings, "same");
  EXPECT_EQ(decodeFacts(encode(factsOf("a", "", ""))).rdmaObstacle, "");
}

}  // namespace
}  // namespace fairring
