// TCP pipes: the conformance test, and what bytes that are not ours do to them.
#include "transport/tcp_pipes.h"

#include <gtest/gtest.h>

#include <string>

#include "transport_pipes_delivery.h"
#include "transport_pipes_ending.h"

namespace fairring {

namespace {

template <std::size_t Count>
struct Tcp {
  static std::string obstacle() { return ""; }
  static Joined join(Loop& loop, PipeReceiver& receiver, Seat seat) {
    auto pipes = std::make_unique<TcpPipes>(loop, receiver);
    for (auto& [peer, sockets] : seat.sockets) {
      for (std::size_t lane = 0; lane < Count; ++lane) {
        pipes->add(peer, static_cast<std::uint32_t>(lane), std::move(sockets[lane]));
      }
    }
    return {std::move(pipes), [] { return true; }};
  }
};

using OneLane = Tcp<1>;
using SeveralLanes = Tcp<Mesh::kLanes>;

}  // namespace

INSTANTIATE_TYPED_TEST_SUITE_P(OneLane, PipesDelivery, OneLane);
INSTANTIATE_TYPED_TEST_SUITE_P(OneLane, PipesEnding, OneLane);
INSTANTIATE_TYPED_TEST_SUITE_P(SeveralLanes, PipesDelivery, SeveralLanes);
INSTANTIATE_TYPED_TEST_SUITE_P(SeveralLanes, PipesEnding, SeveralLanes);

namespace {

// A pipe whose other side is the test's.
class TcpPipesBytes : public ::testing::Test {
 protected:
  TcpPipesBytes() {
    std::array<int, 2> fds;
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()), 0);
    other_ = Descriptor(fds[0]);
    on([&] {
      pipes_ = std::make_unique<TcpPipes>(loop_, receiver_);
      pipes_->add(1, 0, Descriptor(fds[1]));
    });
  }
  ~TcpPipesBytes() override {
    on([&] { pipes_.reset(); });
  }
  void on(const Loop::Task& task) {
    loop_.post(task);
    loop_.runOnce(std::chrono::milliseconds(0));
  }
  void receive(const void* bytes, std::size_t size) {
    ASSERT_EQ(::write(other_.get(), bytes, size), static_cast<ssize_t>(size));
    for (int turn = 0; turn < 3; ++turn) loop_.runOnce(std::chrono::milliseconds(0));
  }

  Loop loop_;
  Recorder receiver_;
  std::unique_ptr<TcpPipes> pipes_;
  Descriptor other_;
};

TEST_F(TcpPipesBytes, AHeaderOfAnotherKindEndsThePipe) {
  const std::string garbage(sizeof(ChunkHeader), 'x');
  receive(garbage.data(), garbage.size());
  ASSERT_EQ(receiver_.ends.size(), 1U);
  EXPECT_EQ(receiver_.ends[0].error.kind(), ErrorKind::Connection);
  EXPECT_TRUE(receiver_.asked.empty());
}

TEST_F(TcpPipesBytes, AHeaderMayComeByteByByte) {
  const ChunkHeader header{.part = grantPart(7).header};
  for (std::size_t i = 0; i < sizeof header; ++i) receive(reinterpret_cast<const char*>(&header) + i, 1);
  ASSERT_EQ(receiver_.arrivals.size(), 1U);
  EXPECT_EQ(receiver_.arrivals[0].header, header.part);
}

TEST_F(TcpPipesBytes, AnEndInTheMiddleOfAPartDoesNotMakeItArrive) {
  const Bytes bytes = pattern(100, 1);
  const ChunkHeader header{.part = dataPart(3, bytes).header, .bytes = 100};
  receive(&header, sizeof header);
  receive(bytes.data(), 99);
  other_.reset();
  loop_.runOnce(std::chrono::milliseconds(0));
  EXPECT_TRUE(receiver_.arrivals.empty());
  EXPECT_EQ(receiver_.ends.size(), 1U);
}

}  // namespace

}  // namespace fairring
