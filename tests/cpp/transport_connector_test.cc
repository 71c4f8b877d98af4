// How connections are made where the network fails: in a network namespace of the test's own thread.
#include "transport/connector.h"

#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace fairring {
namespace {

using std::chrono::milliseconds;

constexpr const char* kLoopback = "lo";

// Brings up the one interface that a new network namespace has. Until then nothing leads anywhere.
void linkUp() {
  const Descriptor any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::memcpy(request.ifr_name, kLoopback, std::strlen(kLoopback) + 1);
  request.ifr_flags = IFF_UP;
  ASSERT_EQ(::ioctl(any.get(), SIOCSIFFLAGS, &request), 0);
}

// On a thread of its own, which alone has that namespace. Skips where the user may not make one.
void withoutNetwork(const std::function<void()>& test) {
  bool isAllowed = false;
  std::thread([&] {
    isAllowed = ::unshare(CLONE_NEWNET) == 0;
    if (isAllowed) test();
  }).join();
  if (!isAllowed) GTEST_SKIP() << "this user may not make a network namespace";
}

TEST(ConnectorWithoutNetwork, IsToldAtOnceThatNothingLeadsThere) {
  withoutNetwork([] { EXPECT_THROW(startConnect(tcpAddress("127.0.0.1", 1)), Unreachable); });
}

TEST(ConnectorWithoutNetwork, TriesAgainUntilItsLinkIsBack) {
  withoutNetwork([] {
    Loop loop;
    const Secret secret{};
    const GroupId group = makeGroupId(secret, "group");
    std::vector<std::string> failures;
    auto connector = std::make_unique<Connector>(
        loop, std::make_shared<GroupEndpoint>(group, secret, 1),
        Connector::Events{[](const AuthenticatedConnection&) { FAIL() << "nobody proves anything here"; },
                          [&](int, const Error& error) { failures.push_back(error.text()); }});
    Descriptor listener;
    loop.post([&] { connector->want({{0, Purpose::Lane, tcpAddress("127.0.0.1", 4000)}}, milliseconds(20'000)); });
    for (int turn = 0; turn < 5; ++turn) loop.runOnce(milliseconds(100));
    EXPECT_EQ(failures, std::vector<std::string>{});
    linkUp();
    listener = listenOn(tcpAddress("127.0.0.1", 4000));
    Descriptor accepted;
    while (!accepted && failures.empty()) {
      loop.runOnce(milliseconds(100));
      accepted = acceptFrom(listener);
    }
    EXPECT_EQ(failures, std::vector<std::string>{});
    loop.post([&] { connector.reset(); });
    loop.runOnce(milliseconds(0));
  });
}

}  // namespace
}  // namespace fairring
