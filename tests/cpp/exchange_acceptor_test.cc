// Who gets in: many peers at once, and peers behind a crowd of strangers. Over real sockets of this machine.
#include "exchange/acceptor.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>

#include "exchange/links.h"
#include "exchange_certificates.h"

namespace fairring {
namespace {

using std::chrono::milliseconds;

constexpr int kSelf = 0;

class Door : public ::testing::Test {
 protected:
  explicit Door(std::shared_ptr<const Tls> tls = nullptr)
      : entrance_(std::make_shared<Entrance>(makeGroupId(secret_, "group"), secret_, kSelf, std::move(tls))) {
    acceptor_.add(entrance_);
  }
  ~Door() override { acceptor_.remove(entrance_); }

  SocketAddress address() const { return tcpAddress("127.0.0.1", acceptor_.port()); }

  // Peers 1 to count connect to rank 0, each with a loop turn in common; how many were let in by both sides.
  int letIn(int count, const Secret& secret, const std::shared_ptr<const Tls>& tls = nullptr) {
    LoopThread loop;
    std::vector<std::unique_ptr<Links>> peers;
    std::promise<void> over;
    int good = 0;
    int bad = 0;
    loop.runAndWait([&] {
      const auto ended = [&](int& counter) {
        ++counter;
        if (good + bad == count) over.set_value();
      };
      for (int rank = 1; rank <= count; ++rank) {
        auto entrance = std::make_shared<Entrance>(entrance_->id, secret, rank, tls);
        peers.push_back(std::make_unique<Links>(
            loop.loop(), std::move(entrance),
            Links::Events{[&, ended](const Arrival&) { ended(good); }, [&, ended](int, const Error&) { ended(bad); }}));
        peers.back()->want({{kSelf, Purpose::Lane, address()}}, milliseconds(20'000));
      }
    });
    over.get_future().wait();
    loop.runAndWait([&] { peers.clear(); });
    return good;
  }

  LoopThread loop_;
  Acceptor acceptor_{loop_, {"127.0.0.1"}, {}};
  const Secret secret_ = randomSecret();
  const std::shared_ptr<Entrance> entrance_;
};

class SecureDoor : public Door {
 protected:
  SecureDoor() : SecureDoor(std::make_unique<Authority>()) {}

  std::shared_ptr<const Tls> issue(const std::string& name) {
    return std::make_shared<const Tls>(authority_->issue(name));
  }

 private:
  explicit SecureDoor(std::unique_ptr<Authority> authority)
      : Door(std::make_shared<const Tls>(authority->issue("self"))), authority_(std::move(authority)) {}

  const std::unique_ptr<Authority> authority_;
};

TEST_F(Door, MorePeersThanMayBeHalfOpenAllGetInWhenTheyComeAtOnce) { EXPECT_EQ(letIn(400, secret_), 400); }

TEST_F(Door, APeerGetsInBehindACrowdOfSilentStrangers) {
  std::vector<Descriptor> crowd;
  const SocketAddress door = address();
  for (std::size_t i = 0; i < Acceptor::kHalfOpen + 40; ++i) {
    crowd.emplace_back(::socket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(::connect(crowd.back().get(), reinterpret_cast<const sockaddr*>(&door.storage), door.length), 0);
  }
  EXPECT_EQ(letIn(1, secret_), 1);
  EXPECT_GT(acceptor_.strangers(), 0U);
}

TEST_F(Door, WhoHasAnotherSecretStaysOutside) {
  LoopThread loop;
  std::promise<std::string> failed;
  std::unique_ptr<Links> stranger;
  loop.runAndWait([&] {
    stranger = std::make_unique<Links>(loop.loop(), std::make_shared<Entrance>(entrance_->id, randomSecret(), 1),
                                       Links::Events{[](const Arrival&) { FAIL() << "let in"; },
                                                     [&](int, const Error& error) { failed.set_value(error.text()); }});
    stranger->want({{kSelf, Purpose::Control, address()}}, milliseconds(300));
  });
  EXPECT_NE(failed.get_future().get().find("challenge"), std::string::npos);
  loop.runAndWait([&] { stranger.reset(); });
}

TEST_F(SecureDoor, PeersGetInBySecretAndCertificate) { EXPECT_EQ(letIn(40, secret_, issue("peer")), 40); }

TEST_F(SecureDoor, WhoHasTheSecretAndAnothersCertificateStaysOutsideAndTheGroupIsTold) {
  Authority foreign;
  std::promise<Arrival> arrived;
  loop_.runAndWait([&] { entrance_->open([&](Arrival arrival) { arrived.set_value(std::move(arrival)); }); });
  EXPECT_EQ(letIn(1, secret_, std::make_shared<const Tls>(foreign.issue("peer"))), 0);
  const Arrival arrival = arrived.get_future().get();
  EXPECT_EQ(arrival.peer, 1);
  EXPECT_EQ(arrival.error.kind(), ErrorKind::Configuration) << arrival.error.text();
  EXPECT_EQ(acceptor_.strangers(), 0U);
}

// TLS would accept him, but he does not get so far: whatever he says first is no greeting.
TEST_F(SecureDoor, WhoHasACertificateAndNotTheSecretIsAStranger) {
  const auto certified = issue("stranger");
  Descriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
  const SocketAddress door = address();
  ASSERT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&door.storage), door.length), 0);
  const auto stream = certified->stream(TlsStream::Side::Connector, socket.get());
  EXPECT_EQ(stream->handshake().kind(), ErrorKind::Connection);
  EXPECT_EQ(acceptor_.strangers(), 1U);
}

TEST_F(Door, APortThatNobodyListensOnIsAnErrorAtOnce) {
  const SocketAddress nobody = tcpAddress("127.0.0.1", 1);
  LoopThread loop;
  std::promise<std::string> failed;
  std::unique_ptr<Links> links;
  loop.runAndWait([&] {
    links = std::make_unique<Links>(loop.loop(), std::make_shared<Entrance>(entrance_->id, secret_, 1),
                                    Links::Events{[](const Arrival&) { FAIL() << "let in"; },
                                                  [&](int, const Error& error) { failed.set_value(error.text()); }});
    links->want({{kSelf, Purpose::Control, nobody}}, milliseconds(60'000));
  });
  EXPECT_NE(failed.get_future().get().find("refused"), std::string::npos);
  loop.runAndWait([&] { links.reset(); });
}

}  // namespace
}  // namespace fairring
