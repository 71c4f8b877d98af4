// Several lanes of one peer that break, are made anew, or are slow.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "transport/tcp_channel.h"
#include "transport_channels_mesh.h"

namespace fairring {
namespace {

constexpr std::size_t kMiB = 1 << 20;

// Two ranks, each with the channel to the other; the test holds the lanes' sockets too, and remakes them on request.
class Lanes : public ::testing::Test {
 protected:
  struct Side {
    Loop loop;
    Recorder receiver;
    std::shared_ptr<TcpChannel> channel;
    std::vector<std::uint32_t> asked;  // lanes to be made anew
  };

  ~Lanes() override {
    for (int rank : {0, 1}) {
      on(rank, [&] { side(rank).channel.reset(); });
    }
  }

  void open(std::uint32_t lanes, std::chrono::milliseconds patience) {
    for (int rank : {0, 1}) {
      on(rank, [&] {
        const Relinking relinking{[this, rank](int, std::uint32_t lane) { side(rank).asked.push_back(lane); },
                                  patience};
        side(rank).channel = std::make_shared<TcpChannel>(side(rank).loop, 1 - rank, side(rank).receiver, relinking,
                                                          std::make_shared<SpareMemory>());
      });
    }
    for (std::uint32_t lane = 0; lane < lanes; ++lane) link(lane);
  }
  void link(std::uint32_t lane) {
    auto [here, there] = Mesh::sockets();
    held_[lane] = Descriptor(::dup(here.get()));
    on(0, [&, &socket = here] { side(0).channel->add(lane, std::move(socket)); });
    on(1, [&, &socket = there] { side(1).channel->add(lane, std::move(socket)); });
  }
  void cut(std::uint32_t lane) { ::shutdown(held_[lane].get(), SHUT_RDWR); }

  Side& side(int rank) { return sides_[rank]; }
  void on(int rank, const Loop::Task& task) {
    side(rank).loop.post(task);
    side(rank).loop.runOnce(std::chrono::milliseconds(0));
  }
  bool until(const std::function<bool()>& condition) {
    const auto deadline = Loop::Clock::now() + std::chrono::seconds(30);
    while (!condition()) {
      if (Loop::Clock::now() > deadline) return false;
      for (int rank : {0, 1}) side(rank).loop.runOnce(std::chrono::milliseconds(1));
    }
    return true;
  }
  // Makes lanes anew for as long as both sides ask for them.
  void relink() {
    for (int rank : {0, 1}) {
      for (const std::uint32_t lane : std::exchange(side(rank).asked, {})) {
        if (rank == 0) link(lane);
      }
    }
  }

  std::vector<Bytes> sendSome(int from, std::size_t messages, std::size_t size) {
    std::vector<Bytes> sent;
    for (std::size_t i = 0; i < messages; ++i) sent.push_back(pattern(size + i, i));
    on(from, [&] {
      for (std::size_t i = 0; i < messages; ++i) {
        side(from).channel->send(std::array{dataMessage(i, sent[i])}, [this] { ++released_; });
      }
    });
    return sent;
  }
  void expectAll(int to, const std::vector<Bytes>& sent) {
    ASSERT_EQ(side(to).receiver.arrivals.size(), sent.size());
    for (std::size_t i = 0; i < sent.size(); ++i) {
      EXPECT_TRUE(side(to).receiver.at(1 - to, dataMessage(i, sent[i]).header) == sent[i]) << "part " << i;
    }
  }

  std::array<Side, 2> sides_;
  std::map<std::uint32_t, Descriptor> held_;
  std::size_t released_ = 0;
};

TEST_F(Lanes, WhatABrokenLaneHadGoesOverTheOthers) {
  open(3, std::chrono::seconds(30));
  const auto sent = sendSome(0, 8, 4 * kMiB);
  ASSERT_TRUE(until([&] { return side(1).receiver.arrivals.size() >= 2; }));
  cut(1);
  ASSERT_TRUE(until([&] { return released_ == sent.size(); }));
  expectAll(1, sent);
  EXPECT_EQ(side(0).asked, std::vector<std::uint32_t>{1});
  EXPECT_EQ(side(1).asked, std::vector<std::uint32_t>{1});
}

TEST_F(Lanes, ThatAllBreakAndComeAgainLoseNothingAndBringNothingTwice) {
  open(2, std::chrono::seconds(30));
  const auto there = sendSome(0, 8, 4 * kMiB);
  const auto back = sendSome(1, 300, 1000);
  for (std::size_t breaks = 0; breaks < 10; ++breaks) {
    ASSERT_TRUE(until([&] { return side(1).receiver.arrivals.size() >= std::min<std::size_t>(breaks, 7); }));
    const std::size_t lanes = breaks % 3 == 0 ? 2 : 1;
    for (std::size_t lane = 0; lane < lanes; ++lane) cut((breaks + lane) % 2);
    // Both sides ask for each lane that was cut. If one were made anew earlier, its second break might be no news.
    ASSERT_TRUE(until([&] { return side(0).asked.size() == lanes && side(1).asked.size() == lanes; }));
    relink();
  }
  ASSERT_TRUE(until([&] {
    relink();
    return released_ == there.size() + back.size() && side(0).receiver.arrivals.size() >= back.size();
  }));
  expectAll(1, there);
  expectAll(0, back);
  EXPECT_TRUE(side(0).receiver.ends.empty());
}

TEST_F(Lanes, ALaneMayBeReplacedBeforeItIsSeenToBreak) {
  open(1, std::chrono::seconds(30));
  const auto sent = sendSome(0, 4, 4 * kMiB);
  ASSERT_TRUE(until([&] { return !side(1).receiver.arrivals.empty(); }));
  link(0);
  ASSERT_TRUE(until([&] { return released_ == sent.size(); }));
  expectAll(1, sent);
}

TEST_F(Lanes, WhereNoneComesAgainInTimeTheChannelEndsAndNamesThePeer) {
  open(2, std::chrono::milliseconds(30));
  cut(0);
  cut(1);
  ASSERT_TRUE(until([&] { return !side(0).receiver.ends.empty() && !side(1).receiver.ends.empty(); }));
  const Error error = side(0).receiver.ends[0].error;
  EXPECT_EQ(error.kind(), ErrorKind::Connection);
  EXPECT_NE(error.text().find("rank 1"), std::string::npos) << error.text();
}

TEST_F(Lanes, NoneIsAskedForOnceThePeerHasClosedItsChannel) {
  open(3, std::chrono::seconds(30));
  on(1, [&] { side(1).channel->close(); });
  ASSERT_TRUE(until([&] { return !side(0).receiver.ends.empty(); }));
  EXPECT_FALSE(side(0).receiver.ends[0].error);
  EXPECT_TRUE(side(0).asked.empty());
}

TEST_F(Lanes, NoneIsAskedForOnceThePeerIsKnownToLeave) {
  open(2, std::chrono::seconds(30));
  on(0, [&] { side(0).channel->peerLeaves(); });
  cut(0);
  cut(1);
  ASSERT_TRUE(until([&] { return !side(0).receiver.ends.empty(); }));
  EXPECT_TRUE(side(0).asked.empty());
}

// The second lane passes a few KiB a turn, the first as much as the loops can carry.
TEST_F(Lanes, ASlowLaneGetsLittleToCarry) {
  open(1, std::chrono::seconds(30));
  auto [here, hereFar] = Mesh::sockets();
  auto [thereFar, there] = Mesh::sockets();
  on(0, [&, &socket = here] { side(0).channel->add(1, std::move(socket)); });
  on(1, [&, &socket = there] { side(1).channel->add(1, std::move(socket)); });
  std::size_t carried = 0;
  std::size_t rounds = 0;
  const auto relay = [&](const Descriptor& from, const Descriptor& to, std::size_t most) {
    std::array<char, 4096> buffer;
    const ssize_t got = ::recv(from.get(), buffer.data(), std::min(most, buffer.size()), 0);
    if (got <= 0) return;
    EXPECT_EQ(::send(to.get(), buffer.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL), got);
    carried += static_cast<std::size_t>(got);
  };
  std::size_t total = 0;
  for (std::size_t round = 1; round <= 4; ++round) {
    const auto sent = sendSome(0, 8, 2 * kMiB);
    for (const Bytes& bytes : sent) total += bytes.size();
    ASSERT_TRUE(until([&] {
      if (++rounds % 2 == 0) relay(hereFar, thereFar, 4096);
      relay(thereFar, hereFar, 4096);
      return released_ == round * sent.size();
    }));
    expectAll(1, sent);
    side(1).receiver.arrivals.clear();
  }
  EXPECT_GT(carried, 0U);
  EXPECT_LT(carried, total / 4);
}

}  // namespace
}  // namespace fairring
