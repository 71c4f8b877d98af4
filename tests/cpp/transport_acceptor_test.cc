// Admission of peers: many at once, and peers behind a crowd of strangers. Over real sockets of this machine.
#include "transport/acceptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "transport/connector.h"
#include "transport_certificates.h"

namespace fairring {
namespace {

using std::chrono::milliseconds;

constexpr int kSelf = 0;

bool isClosed(const Descriptor& socket) {
  char byte = 0;
  const ssize_t got = ::recv(socket.get(), &byte, 1, MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno == ECONNRESET);
}

Descriptor connectedTo(const SocketAddress& address) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length), 0);
  return socket;
}

// Why a rank of that endpoint is not let in there.
std::string refusal(std::shared_ptr<GroupEndpoint> endpoint, const SocketAddress& address, milliseconds patience) {
  LoopThread loop;
  std::promise<std::string> failed;
  std::unique_ptr<Connector> connector;
  loop.runAndWait([&] {
    connector = std::make_unique<Connector>(
        loop.loop(), std::move(endpoint),
        Connector::Events{[](const AuthenticatedConnection&) { FAIL() << "let in"; },
                          [&](int, const Error& error) { failed.set_value(error.text()); }});
    connector->want({{kSelf, Purpose::Control, address}}, patience);
  });
  std::string text = failed.get_future().get();
  loop.runAndWait([&] { connector.reset(); });
  return text;
}

class AcceptorTest : public ::testing::Test {
 protected:
  explicit AcceptorTest(std::shared_ptr<const Tls> tls = nullptr)
      : endpoint_(std::make_shared<GroupEndpoint>(makeGroupId(secret_, "group"), secret_, kSelf, std::move(tls))) {
    acceptor_.add(endpoint_);
  }
  ~AcceptorTest() override { acceptor_.remove(endpoint_); }

  SocketAddress address() const { return tcpAddress("127.0.0.1", acceptor_.port()); }

  // Peers 1 to count connect to rank 0, with a common loop turn for each; returns how many were admitted by both sides.
  int letIn(int count, const Secret& secret, const std::shared_ptr<const Tls>& tls = nullptr) {
    LoopThread loop;
    std::vector<std::unique_ptr<Connector>> peers;
    std::promise<void> over;
    int good = 0;
    int bad = 0;
    loop.runAndWait([&] {
      const auto ended = [&](int& counter) {
        ++counter;
        if (good + bad == count) over.set_value();
      };
      for (int rank = 1; rank <= count; ++rank) {
        auto endpoint = std::make_shared<GroupEndpoint>(endpoint_->id, secret, rank, tls);
        peers.push_back(
            std::make_unique<Connector>(loop.loop(), std::move(endpoint),
                                        Connector::Events{[&, ended](const AuthenticatedConnection&) { ended(good); },
                                                          [&, ended](int, const Error&) { ended(bad); }}));
        peers.back()->want({{kSelf, Purpose::Lane, address()}}, milliseconds(20'000));
      }
    });
    over.get_future().wait();
    loop.runAndWait([&] { peers.clear(); });
    return good;
  }

  // The number of reports. The first refused connection is reported before it is closed.
  std::size_t reports() {
    std::size_t count = 0;
    loop_.runAndWait([&] { count = reports_.size(); });
    return count;
  }

  std::vector<std::string> reports_;  // the loop's
  LoopThread loop_;
  Acceptor acceptor_{loop_, {"127.0.0.1"}, {}, [this](const std::string& text) { reports_.push_back(text); }};
  const Secret secret_ = randomSecret();
  const std::shared_ptr<GroupEndpoint> endpoint_;
};

class SecureAcceptorTest : public AcceptorTest {
 protected:
  SecureAcceptorTest() : SecureAcceptorTest(std::make_unique<Authority>()) {}

  std::shared_ptr<const Tls> issue(const std::string& name) {
    return std::make_shared<const Tls>(authority_->issue(name));
  }

 private:
  explicit SecureAcceptorTest(std::unique_ptr<Authority> authority)
      : AcceptorTest(std::make_shared<const Tls>(authority->issue("self"))), authority_(std::move(authority)) {}

  const std::unique_ptr<Authority> authority_;
};

TEST_F(AcceptorTest, MorePeersThanMayBeHalfOpenAllGetInWhenTheyComeAtOnce) { EXPECT_EQ(letIn(400, secret_), 400); }

TEST_F(AcceptorTest, APeerGetsInBehindACrowdOfSilentStrangers) {
  std::vector<Descriptor> crowd;
  for (std::size_t i = 0; i < Acceptor::kHalfOpen + 40; ++i) crowd.push_back(connectedTo(address()));
  EXPECT_EQ(letIn(1, secret_), 1);
  EXPECT_TRUE(std::ranges::any_of(crowd, isClosed));
}

TEST_F(AcceptorTest, RanksOfOneGroupThatAreThreadsOfOneProcessAreToldApart) {
  constexpr int kOther = 1000;
  const auto other = std::make_shared<GroupEndpoint>(endpoint_->id, secret_, kOther);
  acceptor_.add(other);
  EXPECT_EQ(letIn(1, secret_), 1);
  acceptor_.remove(other);
  EXPECT_EQ(letIn(1, secret_), 1);
}

TEST_F(AcceptorTest, WhoHasAnotherSecretStaysOutside) {
  const auto stranger = std::make_shared<GroupEndpoint>(endpoint_->id, randomSecret(), 1);
  EXPECT_NE(refusal(stranger, address(), milliseconds(300)).find("challenge"), std::string::npos);
}

// Connections for a group that this process has not made yet.
class EarlyRankTest : public ::testing::Test {
 protected:
  explicit EarlyRankTest(milliseconds early = Acceptor::kEarly)
      : acceptor_(loop_, {"127.0.0.1"}, {}, report(), early) {}

  // Returns when the acceptor has closed the connection.
  void say(std::span<const std::byte> bytes) const {
    const Descriptor socket = connectedTo(tcpAddress("127.0.0.1", acceptor_.port()));
    ASSERT_EQ(::send(socket.get(), bytes.data(), bytes.size(), 0), std::ssize(bytes));
    char byte = 0;
    EXPECT_LE(::recv(socket.get(), &byte, 1, 0), 0);
  }
  void comeEarly() const {
    say(Challenge({.from = 7, .to = kSelf, .group = makeGroupId(later_, "later")}, later_).takeOutput());
  }
  std::vector<std::string> reports() {
    std::vector<std::string> copies;
    loop_.runAndWait([&] { copies = reports_; });
    return copies;
  }
  Acceptor::Report report() {
    return [this](const std::string& text) {
      reports_.push_back(text);
      if (reports_.size() == 1) reported_.set_value();
    };
  }

  const Secret later_ = randomSecret();
  std::vector<std::string> reports_;  // the loop's
  std::promise<void> reported_;       // the first
  LoopThread loop_;
  Acceptor acceptor_;
};

TEST_F(EarlyRankTest, ComesEarlyAndIsNoStranger) {
  comeEarly();
  EXPECT_TRUE(reports().empty());
  say(std::vector<std::byte>(76));  // no greeting of ours
  EXPECT_EQ(reports().size(), 1U);
}

class ImpatientTest : public EarlyRankTest {
 protected:
  ImpatientTest() : EarlyRankTest(milliseconds(50)) {}
};

TEST_F(ImpatientTest, ARankWhoseGroupIsNeverMadeHereIsNamed) {
  comeEarly();
  reported_.get_future().wait();
  ASSERT_EQ(reports().size(), 1U);
  EXPECT_NE(reports()[0].find("rank 7 of a group came from 127.0.0.1"), std::string::npos) << reports()[0];
}

// With a time of its own: whose timer is due is not left to chance.
TEST(Acceptor, ARankThatCameEarlyIsNotNamedOnceItsGroupIsHere) {
  Loop::Clock::time_point now;
  LoopThread loop([&now] { return now; });
  std::vector<std::string> reports;
  Acceptor acceptor(loop, {"127.0.0.1"}, {}, [&](const std::string& text) { reports.push_back(text); });
  const Secret secret = randomSecret();
  const auto endpoint = std::make_shared<GroupEndpoint>(makeGroupId(secret, "later"), secret, kSelf);
  const auto comeEarly = [&](std::uint32_t from, std::uint32_t to) {
    const Descriptor socket = connectedTo(tcpAddress("127.0.0.1", acceptor.port()));
    const auto greeting = Challenge({.from = from, .to = to, .group = endpoint->id}, secret).takeOutput();
    ASSERT_EQ(::send(socket.get(), greeting.data(), greeting.size(), 0), std::ssize(greeting));
    while (!isClosed(socket)) loop.loop().runOnce(milliseconds(0));
  };
  comeEarly(7, kSelf);
  comeEarly(8, kSelf + 1);  // of which nobody is here
  acceptor.add(endpoint);
  now += Acceptor::kEarly;
  loop.loop().runOnce(milliseconds(0));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_NE(reports[0].find("rank 8 of a group"), std::string::npos) << reports[0];
  acceptor.remove(endpoint);
}

// TLS's handshake over a socket that blocks before it and after it.
Error shake(TlsStream& stream, const Descriptor& socket) {
  ::fcntl(socket.get(), F_SETFL, O_NONBLOCK);
  Error error;
  while (!(error = stream.handshake()) && !stream.isOpen()) {
    pollfd ready{.fd = socket.get(), .events = POLLIN, .revents = 0};
    ::poll(&ready, 1, -1);
  }
  ::fcntl(socket.get(), F_SETFL, 0);
  return error;
}

TEST_F(SecureAcceptorTest, PeersGetInBySecretAndCertificate) { EXPECT_EQ(letIn(40, secret_, issue("peer")), 40); }

TEST_F(SecureAcceptorTest, WhoHasTheSecretAndAnothersCertificateStaysOutsideAndTheGroupIsTold) {
  Authority foreign;
  std::promise<AuthenticatedConnection> arrived;
  loop_.runAndWait(
      [&] { endpoint_->open([&](AuthenticatedConnection connection) { arrived.set_value(std::move(connection)); }); });
  EXPECT_EQ(letIn(1, secret_, std::make_shared<const Tls>(foreign.issue("peer"))), 0);
  const AuthenticatedConnection connection = arrived.get_future().get();
  EXPECT_EQ(connection.peer, 1);
  EXPECT_EQ(connection.error.kind(), ErrorKind::Configuration) << connection.error.text();
  EXPECT_EQ(reports(), 0U);
}

TEST(GroupEndpoint, KnowsWhoWasRefusedBeforeItIsOpened) {
  GroupEndpoint endpoint(GroupId{}, Secret{}, 0);
  endpoint.put({1, Purpose::Control, 0, Stream(), makeError(ErrorKind::Configuration, "another's certificate")});
  endpoint.put({2, Purpose::Control, 0, Stream(), {}});
  EXPECT_TRUE(endpoint.hasRefused(1));
  EXPECT_FALSE(endpoint.hasRefused(2));
  EXPECT_FALSE(endpoint.hasRefused(3));
}

// The other side may have ended by then, and only this tells why.
TEST_F(AcceptorTest, ALaneThatFailedBeforeLanesWereWantedIsToldOnceTheyAre) {
  std::vector<Error> errors;
  loop_.runAndWait([&] {
    Connector connector(loop_.loop(), endpoint_,
                        Connector::Events{[](const AuthenticatedConnection&) { FAIL() << "let in"; },
                                          [&](int, const Error& error) { errors.push_back(error); }});
    connector.open();
    endpoint_->put({1, Purpose::Lane, 0, Stream(), makeError(ErrorKind::Configuration, "another's certificate")});
    EXPECT_TRUE(errors.empty());
    connector.want({{1, Purpose::Lane, address()}}, milliseconds(20'000));
  });
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors[0].text(), "another's certificate");
}

// TLS would accept this stranger, but it does not get that far: whatever it sends first is no greeting.
TEST_F(SecureAcceptorTest, WhoHasACertificateAndNotTheSecretIsAStranger) {
  const auto certified = issue("stranger");
  const Descriptor socket = connectedTo(address());
  const auto stream = certified->stream(TlsStream::Side::Connector, socket.get());
  EXPECT_EQ(shake(*stream, socket).kind(), ErrorKind::Connection);
  EXPECT_EQ(reports(), 1U);
}

// A man in the middle between a rank and the listener: passes the challenge on, then ends TLS on both sides with a
// certificate that both trust, and passes on the data.
void standBetween(Descriptor listener, const SocketAddress& listenAddress, const Tls& certified) {
  const Descriptor rank(::accept(listener.get(), nullptr, nullptr));
  listener.reset();  // once is enough
  const Descriptor beyond = connectedTo(listenAddress);
  const auto pass = [](const Descriptor& from, const Descriptor& to, std::size_t bytes) {
    std::array<char, 76> words{};
    ASSERT_EQ(::recv(from.get(), words.data(), bytes, MSG_WAITALL), static_cast<ssize_t>(bytes));
    ASSERT_EQ(::send(to.get(), words.data(), bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  };
  pass(rank, beyond, 76);
  pass(beyond, rank, 64);
  pass(rank, beyond, 32);
  const auto here = certified.stream(TlsStream::Side::Acceptor, rank.get());
  const auto there = certified.stream(TlsStream::Side::Connector, beyond.get());
  ASSERT_FALSE(shake(*here, rank));
  ASSERT_FALSE(shake(*there, beyond));
  Challenge::Bytes32 channelBinding{};
  const iovec piece{channelBinding.data(), channelBinding.size()};
  ASSERT_EQ(here->receive({&piece, 1}), 32);
  ASSERT_EQ(there->send({&piece, 1}), 32);
  ASSERT_EQ(there->receive({&piece, 1}), 32);
  ASSERT_EQ(here->send({&piece, 1}), 32);
  for (const auto* stream : {&here, &there}) EXPECT_LE((*stream)->receive({&piece, 1}), 0) << "not closed";
}

TEST_F(SecureAcceptorTest, WhoStandsBetweenWithACertificateAndNotTheSecretGainsNothing) {
  Descriptor listener(::socket(AF_INET, SOCK_STREAM, 0));
  const SocketAddress any = tcpAddress("127.0.0.1", 0);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&any.storage), any.length), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  const SocketAddress there = tcpAddress("127.0.0.1", portOf(listener));
  std::thread between(
      [&, certified = issue("other job")] { standBetween(std::move(listener), address(), *certified); });
  const auto rank = std::make_shared<GroupEndpoint>(endpoint_->id, secret_, 1, issue("rank"));
  const std::string told = refusal(rank, there, milliseconds(20'000));
  between.join();
  EXPECT_EQ(reports(), 1U);
  EXPECT_NE(told.find("refused"), std::string::npos) << "who tries again finds nobody";
}

TEST_F(AcceptorTest, APortThatNobodyListensOnIsAnErrorAtOnce) {
  const auto rank = std::make_shared<GroupEndpoint>(endpoint_->id, secret_, 1);
  EXPECT_NE(refusal(rank, tcpAddress("127.0.0.1", 1), milliseconds(60'000)).find("refused"), std::string::npos);
}

}  // namespace
}  // namespace fairring
