#include "transport/hello.h"

#include <gtest/gtest.h>

#include <random>

namespace fairring {
namespace {

const Secret kSecret = randomSecret();
const Greeting kGreeting{
    .purpose = Purpose::Lane, .lane = 2, .from = 3, .to = 1, .group = makeGroupId(kSecret, "world")};

Hello acceptor(const Secret& secret = kSecret) {
  return Hello([secret](const Greeting&) { return std::optional(secret); });
}

TEST(Hello, BothSidesThatKnowTheSecretPass) {
  Hello connector(kGreeting, kSecret);
  Hello other = acceptor();
  EXPECT_EQ(other.feed(connector.takeOutput()), Hello::State::Wants);
  EXPECT_EQ(connector.feed(other.takeOutput()), Hello::State::Done);
  EXPECT_EQ(other.feed(connector.takeOutput()), Hello::State::Done);
  EXPECT_EQ(other.greeting().from, 3U);
  EXPECT_EQ(other.greeting().purpose, Purpose::Lane);
  EXPECT_EQ(other.greeting().lane, 2U);
}

TEST(Hello, AConnectorWithAnotherSecretIsRefused) {
  Hello connector(kGreeting, randomSecret());
  Hello other = acceptor();
  other.feed(connector.takeOutput());
  EXPECT_EQ(connector.feed(other.takeOutput()), Hello::State::Refused) << "it notices that the acceptor is a stranger";
}

TEST(Hello, AnAcceptorWithAnotherSecretIsRefused) {
  Hello connector(kGreeting, kSecret);
  Hello other = acceptor(randomSecret());
  other.feed(connector.takeOutput());
  EXPECT_EQ(connector.feed(other.takeOutput()), Hello::State::Refused);
}

TEST(Hello, AReplayedProofIsRefused) {
  Hello connector(kGreeting, kSecret);
  Hello first = acceptor();
  const auto greeting = connector.takeOutput();
  first.feed(greeting);
  connector.feed(first.takeOutput());
  const auto proof = connector.takeOutput();
  Hello second = acceptor();
  second.feed(greeting);
  EXPECT_EQ(second.feed(proof), Hello::State::Refused);
}

TEST(Hello, AnyChangedByteIsRefused) {
  for (std::size_t changed = 0; changed < 76; ++changed) {
    Hello connector(kGreeting, kSecret);
    Hello other = acceptor();
    auto greeting = connector.takeOutput();
    ASSERT_EQ(greeting.size(), 76U);
    greeting[changed] ^= std::byte{1};
    if (other.feed(greeting) == Hello::State::Refused) continue;
    EXPECT_EQ(connector.feed(other.takeOutput()), Hello::State::Refused) << "byte " << changed;
  }
}

TEST(Hello, AGroupThatIsNotHereIsRefusedWithoutAnAnswer) {
  Hello connector(kGreeting, kSecret);
  Hello other([](const Greeting&) { return std::nullopt; });
  EXPECT_EQ(other.feed(connector.takeOutput()), Hello::State::Refused);
  EXPECT_TRUE(other.takeOutput().empty());
}

TEST(Hello, BytesMayComeOneByOne) {
  Hello connector(kGreeting, kSecret);
  Hello other = acceptor();
  for (const std::byte byte : connector.takeOutput()) other.feed(std::span(&byte, 1));
  EXPECT_EQ(connector.feed(other.takeOutput()), Hello::State::Done);
}

TEST(Hello, GarbageNeverPassesAndNeverAsksForMoreThanAMessage) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    Hello other = acceptor();
    for (int message = 0; message < 3; ++message) {
      ASSERT_LE(other.wanted(), 76U);
      std::vector<std::byte> bytes(other.wanted());
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      const Hello::State state = other.feed(bytes);
      ASSERT_NE(state, Hello::State::Done);
      if (state == Hello::State::Refused) break;
    }
  }
}

TEST(Hello, ABondHoldsBetweenTheTwoEndsOfOneChannelAndOneChallenge) {
  const auto passed = [] {
    Hello connector(kGreeting, kSecret);
    Hello other = acceptor();
    other.feed(connector.takeOutput());
    connector.feed(other.takeOutput());
    other.feed(connector.takeOutput());
    return std::pair(connector, other);
  };
  const auto [connector, other] = passed();
  const Hello::Bytes32 channel = randomSecret();
  EXPECT_EQ(connector.bond(channel).mine, other.bond(channel).theirs);
  EXPECT_EQ(connector.bond(channel).theirs, other.bond(channel).mine);
  EXPECT_NE(connector.bond(channel).mine, connector.bond(channel).theirs) << "it could be sent back";
  EXPECT_NE(connector.bond(channel).mine, other.bond(randomSecret()).theirs) << "somebody between has two channels";
  EXPECT_NE(connector.bond(channel).mine, passed().second.bond(channel).theirs) << "of another challenge";
}

TEST(Hello, GroupsOfOtherNamesOrSecretsHaveOtherIds) {
  EXPECT_NE(makeGroupId(kSecret, "a"), makeGroupId(kSecret, "b"));
  EXPECT_NE(makeGroupId(kSecret, "a"), makeGroupId(randomSecret(), "a"));
  EXPECT_EQ(makeGroupId(kSecret, "a"), makeGroupId(kSecret, "a"));
}

}  // namespace
}  // namespace fairring
