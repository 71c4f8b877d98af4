// TCP channels: the conformance test, and their behaviour on bytes that are not ours.
#include "transport/tcp_channel.h"

#include <gtest/gtest.h>

#include <string>

#include "transport_channels_delivery.h"
#include "transport_channels_ending.h"

namespace fairring {

namespace {

template <std::size_t Count>
struct Tcp {
  static std::string obstacle() { return ""; }
  static Joined join(Loop& loop, MessageReceiver& receiver, Seat seat) {
    ChannelSettings settings;
    settings.rank = seat.rank;
    for (const auto& [peer, sockets] : seat.sockets) settings.peers.push_back(peer);
    ChannelsByPeer channels = tcpTransport().make(loop, settings, receiver);
    for (auto& [peer, sockets] : seat.sockets) {
      for (std::size_t lane = 0; lane < Count; ++lane)
        channels.at(peer)->add(static_cast<std::uint32_t>(lane), std::move(sockets[lane]));
    }
    return {std::move(channels), [] { return true; }};
  }
};

using OneLane = Tcp<1>;
using SeveralLanes = Tcp<Mesh::kLanes>;

struct Helped : OneLane {
  static Joined join(Loop& loop, MessageReceiver& receiver, Seat seat) {
    loop.setHelpers(2);
    return OneLane::join(loop, receiver, std::move(seat));
  }
};

}  // namespace

INSTANTIATE_TYPED_TEST_SUITE_P(OneLane, ChannelsDelivery, OneLane);
INSTANTIATE_TYPED_TEST_SUITE_P(OneLane, ChannelsEnding, OneLane);
INSTANTIATE_TYPED_TEST_SUITE_P(Helped, ChannelsDelivery, Helped);
INSTANTIATE_TYPED_TEST_SUITE_P(Helped, ChannelsEnding, Helped);
INSTANTIATE_TYPED_TEST_SUITE_P(SeveralLanes, ChannelsDelivery, SeveralLanes);
INSTANTIATE_TYPED_TEST_SUITE_P(SeveralLanes, ChannelsEnding, SeveralLanes);

namespace {

// A channel whose other side is played by the test.
class TcpChannelBytes : public ::testing::Test {
 protected:
  TcpChannelBytes() {
    std::array<int, 2> fds;
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()), 0);
    other_ = Descriptor(fds[0]);
    on([&] {
      channel_ = std::make_shared<TcpChannel>(loop_, 1, receiver_, Relinking(), std::make_shared<SpareMemory>());
      channel_->add(0, Descriptor(fds[1]));
    });
  }
  ~TcpChannelBytes() override {
    on([&] { channel_.reset(); });
  }
  void on(const Loop::Task& task) {
    loop_.post(task);
    loop_.runOnce(std::chrono::milliseconds(0));
  }
  void readAll(void* bytes, std::size_t size) {
    for (std::size_t there = 0; there < size;) {
      const ssize_t got = ::read(other_.get(), static_cast<char*>(bytes) + there, size - there);
      if (got > 0) there += static_cast<std::size_t>(got);
      loop_.runOnce(std::chrono::milliseconds(0));
    }
  }
  void receive(const void* bytes, std::size_t size) {
    ASSERT_EQ(::write(other_.get(), bytes, size), static_cast<ssize_t>(size));
    for (int turn = 0; turn < 3; ++turn) loop_.runOnce(std::chrono::milliseconds(0));
  }

  Loop loop_;
  Recorder receiver_;
  std::shared_ptr<TcpChannel> channel_;
  Descriptor other_;
};

// The stream breaks in the middle of a frame, and more is given to the lane before reading finds the end.
TEST_F(TcpChannelBytes, ABreakWhileAHelperSendsEndsTheChannelOnce) {
  std::vector<std::byte> bytes(4 << 20);
  const auto send = [&] {
    const Message message{{.kind = 1, .bytes = bytes.size()}, bytes.data()};
    on([&] { channel_->send(std::span(&message, 1), nullptr); });
  };
  on([&] { loop_.setHelpers(2); });
  send();
  std::array<char, 1000> some;
  readAll(some.data(), some.size());
  other_ = Descriptor();
  for (int more = 0; more < 10; ++more) send();
  while (!channel_->hasEnded()) loop_.runOnce(std::chrono::milliseconds(10));
  EXPECT_EQ(receiver_.ends.size(), 1U);
}

TEST_F(TcpChannelBytes, AHeaderOfAnotherKindEndsTheChannel) {
  const std::string garbage(sizeof(ChunkHeader), 'x');
  receive(garbage.data(), garbage.size());
  ASSERT_EQ(receiver_.ends.size(), 1U);
  EXPECT_EQ(receiver_.ends[0].error.kind(), ErrorKind::Connection);
  EXPECT_TRUE(receiver_.asked.empty());
}

TEST_F(TcpChannelBytes, AHeaderMayComeByteByByte) {
  const ChunkHeader header{.message = grantMessage(7).header};
  for (std::size_t i = 0; i < sizeof header; ++i) receive(reinterpret_cast<const char*>(&header) + i, 1);
  ASSERT_EQ(receiver_.arrivals.size(), 1U);
  EXPECT_EQ(receiver_.arrivals[0].header, header.message);
}

TEST_F(TcpChannelBytes, AnAcknowledgementThatComesWithTheEndReleases) {
  const Bytes bytes = pattern(kMiB, 1);
  bool released = false;
  const Message message = dataMessage(3, bytes);
  on([&] { channel_->send({&message, 1}, [&] { released = true; }); });
  ChunkHeader last{.message = {.kind = kEnd}};
  for (std::size_t there = 0; there < bytes.size();) {
    ChunkHeader header;
    readAll(&header, sizeof header);
    Bytes chunk(header.bytes);
    readAll(chunk.data(), chunk.size());
    there += chunk.size();
    ++last.acked;
  }
  receive(&last, sizeof last);
  EXPECT_EQ(receiver_.ends.size(), 1U);
  EXPECT_TRUE(released);
}

TEST_F(TcpChannelBytes, AnEndInTheMiddleOfAMessageDoesNotMakeItArrive) {
  const Bytes bytes = pattern(100, 1);
  const ChunkHeader header{.message = dataMessage(3, bytes).header, .bytes = 100};
  receive(&header, sizeof header);
  receive(bytes.data(), 99);
  other_.reset();
  loop_.runOnce(std::chrono::milliseconds(0));
  EXPECT_TRUE(receiver_.arrivals.empty());
  EXPECT_EQ(receiver_.ends.size(), 1U);
}

}  // namespace

}  // namespace fairring
