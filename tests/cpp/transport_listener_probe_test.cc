// Probes whether a peer still listens, over real sockets of this machine.
#include "transport/listener_probe.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

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
  std::vector<int> shut_;
  std::unique_ptr<ListenerProbe> watch_ =
      std::make_unique<ListenerProbe>(loop_, milliseconds(1), [this](int peer) { shut_.push_back(peer); });
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

}  // namespace
}  // namespace fairring
