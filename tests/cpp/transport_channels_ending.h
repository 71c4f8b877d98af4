// Conformance of Channel: refusal, closing, and the death of a peer.
#pragma once

#include <malloc.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <memory>
#include <tuple>
#include <vector>

#include "transport_channels_conformance.h"

namespace fairring {

template <class Implementation>
class ChannelsEnding : public ChannelsConformance<Implementation> {};
TYPED_TEST_SUITE_P(ChannelsEnding);

TYPED_TEST_P(ChannelsEnding, ARefusedMessageEndsThatChannelAlone) {
  const Bytes bytes = pattern(1000, 1);
  Mesh mesh(3, TypeParam::join);
  ASSERT_TRUE(mesh.opened());
  mesh.receiver(1).refused = 0;
  mesh.send(0, 1, {dataMessage(1, bytes)});
  ASSERT_TRUE(mesh.until([&] { return !mesh.receiver(0).ends.empty() && !mesh.receiver(1).ends.empty(); }));
  const Error error = mesh.receiver(1).ends[0].error;
  ASSERT_TRUE(error);
  EXPECT_EQ(error.kind(), ErrorKind::Connection);
  EXPECT_NE(error.text().find("rank 0"), std::string::npos) << error.text();
  mesh.send(2, 1, {dataMessage(2, bytes)});
  mesh.send(0, 2, {dataMessage(3, bytes)});
  ASSERT_TRUE(mesh.untilArrived(1, 1) && mesh.untilArrived(2, 1));
  EXPECT_EQ(mesh.receiver(0).ends.size(), 1U);
  EXPECT_EQ(mesh.receiver(1).ends.size(), 1U);
  EXPECT_TRUE(mesh.receiver(2).ends.empty());
}

TYPED_TEST_P(ChannelsEnding, ClosingEndsThePeersChannelOnceAndInGoodOrder) {
  bool released = false;
  Mesh mesh(2, TypeParam::join);
  ASSERT_TRUE(mesh.opened());
  mesh.close(1);
  ASSERT_TRUE(mesh.until([&] { return !mesh.receiver(0).ends.empty(); }));
  EXPECT_EQ(mesh.receiver(0).ends[0].peer, 1);
  EXPECT_FALSE(mesh.receiver(0).ends[0].error) << mesh.receiver(0).ends[0].error.text();
  mesh.send(0, 1, {grantMessage(1)}, [&] { released = true; });  // to nobody
  mesh.turns(20);
  EXPECT_FALSE(released);
  EXPECT_EQ(mesh.receiver(0).ends.size(), 1U);
  EXPECT_TRUE(mesh.receiver(1).ends.empty());
}

TYPED_TEST_P(ChannelsEnding, SendsStayCountedWhenTheChannelHasEnded) {
  const Bytes bytes = pattern(1000, 1);
  Mesh mesh(2, TypeParam::join);
  ASSERT_TRUE(mesh.opened());
  mesh.send(0, 1, {dataMessage(1, bytes)});
  ASSERT_TRUE(mesh.untilArrived(1, 1));
  const std::uint64_t sends = mesh.channel(0, 1).sends();
  EXPECT_GT(sends, 0U);
  mesh.close(1);
  ASSERT_TRUE(mesh.until([&] { return !mesh.receiver(0).ends.empty(); }));
  EXPECT_EQ(mesh.channel(0, 1).sends(), sends);
  mesh.close(0);
  EXPECT_EQ(mesh.channel(0, 1).sends(), sends);
}

TYPED_TEST_P(ChannelsEnding, DestructionClosesWhatWasNotClosed) {
  auto bytes = std::make_unique<Bytes>(pattern(8 * kMiB, 1));
  Mesh mesh(2, TypeParam::join);
  ASSERT_TRUE(mesh.opened());
  mesh.send(1, 0, {dataMessage(1, *bytes)});
  mesh.leave(1);
  bytes.reset();
  ASSERT_TRUE(mesh.until([&] { return !mesh.receiver(0).ends.empty(); }));
  EXPECT_TRUE(mesh.receiver(1).ends.empty());
}

// Any access to the memory after close() hits unmapped memory here, or the address sanitizer's poison.
TYPED_TEST_P(ChannelsEnding, OnceClosedNothingIsTouchedOrCalled) {
  ::mallopt(M_MMAP_THRESHOLD, kMiB);  // freed memory is unmapped at once
  int released = 0;
  std::array<std::vector<Bytes>, 2> sent;
  for (std::uint64_t slice = 0; slice < 8; ++slice) {
    for (const int from : {0, 1}) sent[from].push_back(pattern(4 * kMiB, slice));
  }
  Mesh mesh(2, TypeParam::join);
  ASSERT_TRUE(mesh.opened());
  for (std::uint64_t slice = 0; slice < 8; ++slice) {
    for (const int from : {0, 1})
      mesh.send(from, 1 - from, {dataMessage(slice, sent[from][slice])}, [&] { ++released; });
  }
  ASSERT_TRUE(mesh.until([&] { return mesh.receiver(0).asked.size() > 1 && mesh.receiver(1).asked.size() > 1; }));
  for (const int rank : {0, 1}) {
    mesh.close(rank);
    mesh.receiver(rank).memory.clear();
    sent[rank].clear();
  }
  const int releasedBefore = released;
  const auto told = [&](int rank) { return std::tuple(mesh.receiver(rank).asked, mesh.receiver(rank).arrivals); };
  const auto toldBefore = std::pair(told(0), told(1));
  mesh.turns(20);
  EXPECT_EQ(released, releasedBefore);
  EXPECT_EQ(std::pair(told(0), told(1)), toldBefore);
  EXPECT_TRUE(mesh.receiver(0).ends.empty());
}

// A rank that gives up may reuse its memory at once; its peers must not take the new content for the message.
TYPED_TEST_P(ChannelsEnding, AClosedRanksOverwrittenMemoryNeverArrives) {
  std::vector<Bytes> sent(8);
  for (std::uint64_t slice = 0; slice < 8; ++slice) sent[slice] = pattern(4 * kMiB, slice);
  Mesh mesh(2, TypeParam::join);
  ASSERT_TRUE(mesh.opened());
  for (std::uint64_t slice = 0; slice < 8; ++slice) mesh.send(0, 1, {dataMessage(slice, sent[slice])});
  ASSERT_TRUE(mesh.until([&] { return !mesh.receiver(1).asked.empty(); }));
  mesh.close(0);
  for (Bytes& bytes : sent) std::ranges::fill(bytes, std::byte{0xFF});
  ASSERT_TRUE(mesh.until([&] { return !mesh.receiver(1).ends.empty(); }));
  for (const Recorder::AuthenticatedConnection& arrival : mesh.receiver(1).arrivals) {
    const std::uint64_t slice = arrival.header.fields[0];
    EXPECT_TRUE(mesh.receiver(1).at(0, arrival.header) == pattern(4 * kMiB, slice)) << "slice " << slice;
  }
}

// Forks a process with rank 1, which sends a grant as a sign of life and then serves its loop until it is killed.
inline pid_t forkPeer(const std::vector<Descriptor>& sockets, Join join) {
  std::vector<int> inherited;  // a Descriptor is closed in a forked child
  for (const Descriptor& socket : sockets) inherited.push_back(::dup(socket.get()));
  const pid_t process = ::fork();
  if (process != 0) {
    for (const int fd : inherited) ::close(fd);
    return process;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Seat seat{.rank = 1, .sockets = {}};
  for (const int fd : inherited) seat.sockets[0].emplace_back(fd);
  Mesh mesh(std::move(seat), join);
  mesh.send(0, 0, {grantMessage(1)});  // the only rank of this process's mesh
  mesh.until([] { return false; });
  ::_exit(1);
}

TYPED_TEST_P(ChannelsEnding, AKilledPeersChannelEndsOnceAndAnErrorNamesIt) {
  if constexpr (requires { TypeParam::kTellsNoDeath; }) GTEST_SKIP() << "the control connection tells of deaths";
  const Bytes bytes = pattern(8 * kMiB, 1);
  for (const bool busy : {false, true}) {
    Seat seat{.rank = 0, .sockets = {}};
    std::vector<Descriptor> theirs;
    for (int lane = 0; lane < Mesh::kLanes; ++lane) {
      auto [here, there] = Mesh::sockets();
      seat.sockets[1].push_back(std::move(here));
      theirs.push_back(std::move(there));
    }
    const pid_t process = forkPeer(theirs, TypeParam::join);
    theirs.clear();
    ASSERT_GT(process, 0);
    Mesh mesh(std::move(seat), TypeParam::join);
    ASSERT_TRUE(mesh.opened() && mesh.untilArrived(0, 1));
    for (std::uint64_t slice = 0; busy && slice < 4; ++slice) mesh.send(0, 1, {dataMessage(slice, bytes)});
    ASSERT_EQ(::kill(process, SIGKILL), 0);
    ASSERT_EQ(::waitpid(process, nullptr, 0), process);
    EXPECT_TRUE(mesh.until([&] { return !mesh.receiver(0).ends.empty(); }));
    mesh.turns(20);
    ASSERT_EQ(mesh.receiver(0).ends.size(), 1U);
    const auto& [peer, error] = mesh.receiver(0).ends[0];
    EXPECT_EQ(peer, 1);
    EXPECT_TRUE(!error || error.text().find("rank 1") != std::string::npos) << error.text();
  }
}

REGISTER_TYPED_TEST_SUITE_P(ChannelsEnding, ARefusedMessageEndsThatChannelAlone,
                            ClosingEndsThePeersChannelOnceAndInGoodOrder, SendsStayCountedWhenTheChannelHasEnded,
                            DestructionClosesWhatWasNotClosed, OnceClosedNothingIsTouchedOrCalled,
                            AClosedRanksOverwrittenMemoryNeverArrives, AKilledPeersChannelEndsOnceAndAnErrorNamesIt);

}  // namespace fairring
