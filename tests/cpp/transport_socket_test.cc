// The options of a lane's socket, as far as the kernel reports them. Over loopback, where everything is near.
#include "transport/socket.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <array>
#include <string>

#include "base/error.h"

namespace fairring {
namespace {

bool setCongestion(const Descriptor& socket, const std::string& name) {
  return ::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0;
}

std::string congestionOf(const Descriptor& socket) {
  std::array<char, 16> name{};
  socklen_t size = name.size();
  EXPECT_EQ(::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &size), 0);
  return name.data();
}

Descriptor connected(const Descriptor& listener) {
  Descriptor socket = startConnect(tcpAddress("127.0.0.1", portOf(listener)));
  pollfd ready{.fd = socket.get(), .events = POLLOUT, .revents = 0};
  EXPECT_EQ(::poll(&ready, 1, 10'000), 1);
  EXPECT_EQ(finishConnect(socket), 0);
  return socket;
}

TEST(Socket, ToANearMachineTakesCubicForBbr) {
  const Descriptor listener = listenOn(tcpAddress("127.0.0.1", 0));
  const Descriptor socket = connected(listener);
  if (!setCongestion(socket, "cubic") || !setCongestion(socket, "bbr")) GTEST_SKIP() << "the kernel lacks one of them";
  shareEvenly(socket);
  EXPECT_EQ(congestionOf(socket), "cubic");
}

TEST(Socket, KeepsAnyOtherCongestionControl) {
  const Descriptor listener = listenOn(tcpAddress("127.0.0.1", 0));
  const Descriptor socket = connected(listener);
  ASSERT_TRUE(setCongestion(socket, "reno"));
  shareEvenly(socket);
  EXPECT_EQ(congestionOf(socket), "reno");
}

TEST(Socket, ToANearMachineRepeatsLostPacketsSoon) {
  constexpr int kTcpRtoMinUs = 45;  // TCP_RTO_MIN_US
  const Descriptor listener = listenOn(tcpAddress("127.0.0.1", 0));
  const Descriptor socket = connected(listener);
  int microseconds = 0;
  socklen_t size = sizeof microseconds;
  if (::getsockopt(socket.get(), IPPROTO_TCP, kTcpRtoMinUs, &microseconds, &size) != 0)
    GTEST_SKIP() << "the kernel is older than 6.15";
  shareEvenly(socket);
  ASSERT_EQ(::getsockopt(socket.get(), IPPROTO_TCP, kTcpRtoMinUs, &microseconds, &size), 0);
  EXPECT_GE(microseconds, 40'000);
  EXPECT_LE(microseconds, 60'000);
}

TEST(Socket, OfTheMachineHasNone) {
  const Descriptor listener = listenOn(localAddress("fairring-socket-test"));
  const Descriptor socket = startConnect(localAddress("fairring-socket-test"));
  shareEvenly(socket);
  EXPECT_TRUE(isLocal(socket));
}

TEST(Socket, OfTheMachineWhereNobodyListensTellsADeath) {
  try {
    startConnect(localAddress("fairring-socket-test-nobody"));
    FAIL() << "somebody listens there";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.error().kind(), ErrorKind::PeerDied) << failure.what();
  }
}

}  // namespace
}  // namespace fairring
