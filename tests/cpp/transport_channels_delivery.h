// Conformance of Channel: messages arrive whole, at their place, and their memory comes back.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "transport_channels_conformance.h"

namespace fairring {

template <class Implementation>
class ChannelsDelivery : public ChannelsConformance<Implementation> {};
TYPED_TEST_SUITE_P(ChannelsDelivery);

TYPED_TEST_P(ChannelsDelivery, AMessageArrivesWholeAtItsPlaceWithItsHeader) {
  const Bytes bytes = pattern(100, 1);
  const Message message = dataMessage(7, bytes);
  Mesh mesh(2, TypeParam::join);
  ASSERT_TRUE(mesh.opened());
  mesh.send(0, 1, {message});
  ASSERT_TRUE(mesh.untilArrived(1, 1));
  const std::vector<Recorder::AuthenticatedConnection> once{{0, message.header}};
  EXPECT_EQ(mesh.receiver(1).asked, once);
  EXPECT_EQ(mesh.receiver(1).arrivals, once);
  EXPECT_EQ(mesh.receiver(1).at(0, message.header), bytes);
}

TYPED_TEST_P(ChannelsDelivery, AGrantArrivesWithoutAPlaceBeingAskedFor) {
  bool released = false;
  Mesh mesh(2, TypeParam::join);
  ASSERT_TRUE(mesh.opened());
  mesh.send(1, 0, {grantMessage(3)}, [&] { released = true; });
  ASSERT_TRUE(mesh.until([&] { return released && !mesh.receiver(0).arrivals.empty(); }));
  EXPECT_EQ(mesh.receiver(0).arrivals, (std::vector<Recorder::AuthenticatedConnection>{{1, grantMessage(3).header}}));
  EXPECT_TRUE(mesh.receiver(0).asked.empty());
}

TYPED_TEST_P(ChannelsDelivery, MessagesOfOneBatchGoToPlacesOfTheirOwn) {
  const std::array<Bytes, 3> bytes{pattern(1, 1), pattern(70 * kKiB, 2), pattern(63, 3)};
  Mesh mesh(2, TypeParam::join);
  ASSERT_TRUE(mesh.opened());
  mesh.send(
      0, 1,
      {dataMessage(1, bytes[0]), grantMessage(9), dataMessage(2, bytes[1]), grantMessage(8), dataMessage(3, bytes[2])});
  ASSERT_TRUE(mesh.untilArrived(1, 5));
  Recorder& receiver = mesh.receiver(1);
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(receiver.at(0, dataMessage(i + 1, bytes[i]).header), bytes[i]);
  for (const std::uint64_t slice : {8, 9}) {
    EXPECT_EQ(std::ranges::count(receiver.arrivals, Recorder::AuthenticatedConnection{0, grantMessage(slice).header}),
              1);
  }
}

TYPED_TEST_P(ChannelsDelivery, MessagesOfAllSizesCrossBothWaysAtOnceIntact) {
  std::array<std::vector<Bytes>, 2> sent;
  Mesh mesh(2, TypeParam::join);
  ASSERT_TRUE(mesh.opened());
  for (int round = 0; round < 3; ++round) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{63}, 64 * kKiB, kMiB + 1, 8 * kMiB}) {
      for (const int from : {0, 1}) sent[from].push_back(pattern(size, 2 * sent[from].size() + from));
    }
  }
  for (std::size_t slice = 0; slice < sent[0].size(); ++slice) {
    for (const int from : {0, 1}) mesh.send(from, 1 - from, {dataMessage(slice, sent[from][slice])});
  }
  for (const int to : {0, 1}) {
    ASSERT_TRUE(mesh.untilArrived(to, sent[0].size()));
    for (std::size_t slice = 0; slice < sent[0].size(); ++slice) {
      const Bytes& bytes = sent[1 - to][slice];
      EXPECT_TRUE(mesh.receiver(to).at(1 - to, dataMessage(slice, bytes).header) == bytes) << "slice " << slice;
    }
  }
}

TYPED_TEST_P(ChannelsDelivery, ManyOutstandingSendsAllArrive) {
  std::vector<Bytes> sent(300);
  for (std::uint64_t slice = 0; slice < sent.size(); ++slice) sent[slice] = pattern(slice * 37 % 5000, slice);
  Mesh mesh(2, TypeParam::join);
  ASSERT_TRUE(mesh.opened());
  mesh.on(0, [&] {
    for (std::uint64_t slice = 0; slice < sent.size(); ++slice) {
      mesh.channel(0, 1).send(std::array{dataMessage(slice, sent[slice])}, [] {});
    }
  });
  ASSERT_TRUE(mesh.untilArrived(1, sent.size()));
  for (std::uint64_t slice = 0; slice < sent.size(); ++slice) {
    EXPECT_EQ(mesh.receiver(1).at(0, dataMessage(slice, sent[slice]).header), sent[slice]);
  }
}

TYPED_TEST_P(ChannelsDelivery, ReleasedComesOncePerSendAndNeverWithinIt) {
  const Bytes bytes = pattern(1000, 1);
  std::vector<int> released(20);
  Mesh mesh(2, TypeParam::join);
  ASSERT_TRUE(mesh.opened());
  mesh.on(0, [&] {
    for (int& count : released) {
      mesh.channel(0, 1).send(std::array{dataMessage(1, bytes)}, [&count] { ++count; });
      EXPECT_EQ(count, 0);
    }
  });
  ASSERT_TRUE(mesh.until([&] { return std::ranges::count(released, 0) == 0; }));
  ASSERT_TRUE(mesh.untilArrived(1, released.size()));
  mesh.turns(10);
  EXPECT_EQ(released, std::vector<int>(released.size(), 1));
}

TYPED_TEST_P(ChannelsDelivery, WhatIsReleasedMayBeOverwritten) {
  const Bytes original = pattern(8 * kMiB, 5);
  Bytes bytes = original;
  const Message message = dataMessage(1, bytes);
  Mesh mesh(2, TypeParam::join);
  ASSERT_TRUE(mesh.opened());
  mesh.send(0, 1, {message}, [&] { std::ranges::fill(bytes, std::byte{0xFF}); });
  ASSERT_TRUE(mesh.untilArrived(1, 1) && mesh.until([&] { return bytes[0] == std::byte{0xFF}; }));
  EXPECT_TRUE(mesh.receiver(1).at(0, message.header) == original);
}

TYPED_TEST_P(ChannelsDelivery, BytesSeenGrowWithAllThatComes) {
  const Bytes bytes = pattern(1000, 1);
  Mesh mesh(2, TypeParam::join);
  ASSERT_TRUE(mesh.opened());
  EXPECT_EQ(mesh.channel(1, 0).bytesSeen(), 0U);
  mesh.send(0, 1, {grantMessage(1)});
  ASSERT_TRUE(mesh.untilArrived(1, 1));
  const std::uint64_t ofGrant = mesh.channel(1, 0).bytesSeen();
  EXPECT_GE(ofGrant, sizeof(MessageHeader));
  mesh.send(0, 1, {dataMessage(2, bytes)});
  ASSERT_TRUE(mesh.untilArrived(1, 2));
  EXPECT_GE(mesh.channel(1, 0).bytesSeen(), ofGrant + sizeof(MessageHeader) + bytes.size());
}

TYPED_TEST_P(ChannelsDelivery, ThreeRanksTalkAtOnce) {
  std::array<Bytes, 3> bytes;
  for (int rank = 0; rank < 3; ++rank) bytes[rank] = pattern(300 * kKiB, rank);
  Mesh mesh(3, TypeParam::join);
  ASSERT_TRUE(mesh.opened());
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to) {
      if (to != from) mesh.send(from, to, {dataMessage(1, bytes[from])});
    }
  }
  for (int to = 0; to < 3; ++to) {
    ASSERT_TRUE(mesh.untilArrived(to, 2));
    for (int from = 0; from < 3; ++from) {
      if (to == from) continue;
      EXPECT_EQ(mesh.receiver(to).at(from, dataMessage(1, bytes[from]).header), bytes[from]);
    }
  }
}

REGISTER_TYPED_TEST_SUITE_P(ChannelsDelivery, AMessageArrivesWholeAtItsPlaceWithItsHeader,
                            AGrantArrivesWithoutAPlaceBeingAskedFor, MessagesOfOneBatchGoToPlacesOfTheirOwn,
                            MessagesOfAllSizesCrossBothWaysAtOnceIntact, ManyOutstandingSendsAllArrive,
                            ReleasedComesOncePerSendAndNeverWithinIt, WhatIsReleasedMayBeOverwritten,
                            BytesSeenGrowWithAllThatComes, ThreeRanksTalkAtOnce);

}  // namespace fairring
