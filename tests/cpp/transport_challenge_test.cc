#include "transport/challenge.h"

#include <gtest/gtest.h>

#include <random>

namespace fairring {
namespace {

const Secret kSecret = randomSecret();
const Greeting kGreeting{
    .purpose = Purpose::Lane, .lane = 2, .from = 3, .to = 1, .group = makeGroupId(kSecret, "world")};

Challenge acceptor(const Secret& secret = kSecret) {
  return Challenge([secret](const Greeting&) { return std::optional(secret); });
}

TEST(Challenge, BothSidesThatKnowTheSecretPass) {
  Challenge connector(kGreeting, kSecret);
  Challenge other = acceptor();
  EXPECT_EQ(other.feed(connector.takeOutput()), Challenge::State::Wants);
  EXPECT_EQ(connector.feed(other.takeOutput()), Challenge::State::Done);
  EXPECT_EQ(other.feed(connector.takeOutput()), Challenge::State::Done);
  EXPECT_EQ(other.greeting().from, 3U);
  EXPECT_EQ(other.greeting().purpose, Purpose::Lane);
  EXPECT_EQ(other.greeting().lane, 2U);
}

TEST(Challenge, AConnectorWithAnotherSecretIsRefused) {
  Challenge connector(kGreeting, randomSecret());
  Challenge other = acceptor();
  other.feed(connector.takeOutput());
  EXPECT_EQ(connector.feed(other.takeOutput()), Challenge::State::Refused)
      << "it notices that the acceptor is a stranger";
}

TEST(Challenge, AnAcceptorWithAnotherSecretIsRefused) {
  Challenge connector(kGreeting, kSecret);
  Challenge other = acceptor(randomSecret());
  other.feed(connector.takeOutput());
  EXPECT_EQ(connector.feed(other.takeOutput()), Challenge::State::Refused);
}

TEST(Challenge, AReplayedProofIsRefused) {
  Challenge connector(kGreeting, kSecret);
  Challenge first = acceptor();
  const auto greeting = connector.takeOutput();
  first.feed(greeting);
  connector.feed(first.takeOutput());
  const auto proof = connector.takeOutput();
  Challenge second = acceptor();
  second.feed(greeting);
  EXPECT_EQ(second.feed(proof), Challenge::State::Refused);
}

TEST(Challenge, AnyChangedByteIsRefused) {
  for (std::size_t changed = 0; changed < 76; ++changed) {
    Challenge connector(kGreeting, kSecret);
    Challenge other = acceptor();
    auto greeting = connector.takeOutput();
    ASSERT_EQ(greeting.size(), 76U);
    greeting[changed] ^= std::byte{1};
    if (other.feed(greeting) == Challenge::State::Refused) continue;
    EXPECT_EQ(connector.feed(other.takeOutput()), Challenge::State::Refused) << "byte " << changed;
  }
}

TEST(Challenge, AGroupThatIsNotHereIsRefusedWithoutAnAnswer) {
  Challenge connector(kGreeting, kSecret);
  Challenge other([](const Greeting&) { return std::nullopt; });
  EXPECT_EQ(other.feed(connector.takeOutput()), Challenge::State::Refused);
  EXPECT_TRUE(other.takeOutput().empty());
}

TEST(Challenge, BytesMayComeOneByOne) {
  Challenge connector(kGreeting, kSecret);
  Challenge other = acceptor();
  for (const std::byte byte : connector.takeOutput()) other.feed(std::span(&byte, 1));
  EXPECT_EQ(connector.feed(other.takeOutput()), Challenge::State::Done);
}

TEST(Challenge, GarbageNeverPassesAndNeverAsksForMoreThanAMessage) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    Challenge other = acceptor();
    for (int message = 0; message < 3; ++message) {
      ASSERT_LE(other.wanted(), 76U);
      std::vector<std::byte> bytes(other.wanted());
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      const Challenge::State state = other.feed(bytes);
      ASSERT_NE(state, Challenge::State::Done);
      if (state == Challenge::State::Refused) break;
    }
  }
}

TEST(Challenge, ABindingHoldsBetweenTheTwoEndsOfOneChannelAndOneChallenge) {
  const auto passed = [] {
    Challenge connector(kGreeting, kSecret);
    Challenge other = acceptor();
    other.feed(connector.takeOutput());
    connector.feed(other.takeOutput());
    other.feed(connector.takeOutput());
    return std::pair(connector, other);
  };
  const auto [connector, other] = passed();
  const Challenge::Bytes32 channel = randomSecret();
  EXPECT_EQ(connector.channelBinding(channel).mine, other.channelBinding(channel).theirs);
  EXPECT_EQ(connector.channelBinding(channel).theirs, other.channelBinding(channel).mine);
  EXPECT_NE(connector.channelBinding(channel).mine, connector.channelBinding(channel).theirs)
      << "it could be sent back";
  EXPECT_NE(connector.channelBinding(channel).mine, other.channelBinding(randomSecret()).theirs)
      << "somebody between has two channels";
  EXPECT_NE(connector.channelBinding(channel).mine, passed().second.channelBinding(channel).theirs)
      << "of another challenge";
}

TEST(Challenge, GroupsOfOtherNamesOrSecretsHaveOtherIds) {
  EXPECT_NE(makeGroupId(kSecret, "a"), makeGroupId(kSecret, "b"));
  EXPECT_NE(makeGroupId(kSecret, "a"), makeGroupId(randomSecret(), "a"));
  EXPECT_EQ(makeGroupId(kSecret, "a"), makeGroupId(kSecret, "a"));
}

}  // namespace
}  // namespace fairring
