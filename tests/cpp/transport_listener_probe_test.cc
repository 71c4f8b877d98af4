// Probes whether a peer still listens, over real sockets of this machine.
#include "transport/listener_probe.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "deaf_listener.h"

namespace fairring {
namespace {

using std::chrono::milliseconds;

constexpr int kPeer = 3;
constexpr int kOther = 5;

class Watch : public ::testing::Test {
 protected:
  ~Watch() override {
    loop_.post([this] { watch_.reset(); });
    loop_.runOnce(milliseconds(0));
  }

  SocketAddress address() const { return tcpAddress("127.0.0.1", portOf(door_)); }

  void watch(int peer) {
    loop_.post([this, peer] { watch_->watch(peer, address()); });
  }

  // Accepts that many probes, each of which is over before the next.
  void serve(int looks) {
    while (looks > 0) {
      loop_.runOnce(milliseconds(100));
      if (acceptFrom(door_)) --looks;
    }
  }

  Loop loop_;
  Descriptor door_ = listenOn(tcpAddress("127.0.0.1", 0));
  std::unique_ptr<ListenerProbe> probe(milliseconds patience) {
    return std::make_unique<ListenerProbe>(loop_, ListenerProbe::Pace{milliseconds(1), patience},
                                           ListenerProbe::Events{[this](int peer) { shut_.push_back(peer); },
                                                                 [this](int peer, const Error& error) {
                                                                   silent_.push_back(peer);
                                                                   reason_ = error.text();
                                                                 },
                                                                 [this](int peer, milliseconds silence) {
                                                                   stopped_.push_back(peer);
                                                                   silence_ = silence;
                                                                 }});
  }

  std::vector<int> shut_;
  std::vector<int> silent_;
  std::string reason_;  // for the last of them
  std::vector<int> stopped_;
  milliseconds silence_{0};  // of the last of them
  std::unique_ptr<ListenerProbe> watch_ = probe(milliseconds(60'000));
};

TEST_F(Watch, AListenerIsProbedAgainAndAgainAndARefusalSaidOnce) {
  watch(kPeer);
  serve(5);
  EXPECT_TRUE(shut_.empty());
  door_ = {};
  while (shut_.empty()) loop_.runOnce(milliseconds(100));
  loop_.runOnce(milliseconds(20));  // nothing is left to probe: no timer ends this turn early
  EXPECT_EQ(shut_, std::vector<int>{kPeer});
}

TEST_F(Watch, WhoIsForgottenIsLookedAtNoMore) {
  watch(kPeer);
  watch(kOther);
  serve(4);
  loop_.post([this] { watch_->forget(kPeer); });
  door_ = {};
  while (shut_.empty()) loop_.runOnce(milliseconds(100));
  loop_.runOnce(milliseconds(20));
  EXPECT_EQ(shut_, std::vector<int>{kOther});
}

TEST_F(Watch, WhoNeverAnswersIsSaidOnceAndWhoDoesIsNot) {
  const testing::DeafListener deaf;
  loop_.post([this] { watch_ = probe(milliseconds(200)); });
  watch(kOther);
  loop_.post([&] { watch_->watch(kPeer, deaf.address()); });
  while (silent_.empty()) {
    loop_.runOnce(milliseconds(1));
    acceptFrom(door_);
  }
  serve(3);
  EXPECT_EQ(silent_, std::vector<int>{kPeer});
  EXPECT_EQ(reason_, "no answer to any probe of its listener within 200 ms");
  EXPECT_TRUE(shut_.empty());
}

// The kernel takes the connections of a stopped process.
TEST_F(Watch, WhoTakesConnectionsAndDoesNotCloseThemIsStopped) {
  const Descriptor stopped = listenOn(tcpAddress("127.0.0.1", 0));
  loop_.post([this] { watch_ = probe(milliseconds(200)); });
  watch(kOther);
  loop_.post([&] { watch_->watch(kPeer, tcpAddress("127.0.0.1", portOf(stopped))); });
  while (stopped_.empty()) {
    loop_.runOnce(milliseconds(1));
    acceptFrom(door_);
  }
  serve(3);
  EXPECT_EQ(stopped_, std::vector<int>{kPeer});
  EXPECT_GE(silence_, milliseconds(200));
  EXPECT_TRUE(silent_.empty());
  EXPECT_TRUE(shut_.empty());
}

TEST_F(Watch, WhoGoesOnInTimeIsNotSaidToBeStopped) {
  loop_.post([this] { watch_ = probe(milliseconds(60'000)); });
  watch(kPeer);
  for (int i = 0; i < 20; ++i) loop_.runOnce(milliseconds(5));
  serve(3);
  EXPECT_TRUE(stopped_.empty());
}

}  // namespace
}  // namespace fairring
