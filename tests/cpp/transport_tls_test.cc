// The promises of TLS to a stream: the same bytes, large and small, however much the socket takes at once; ends that
// are reported; and no peer without a certificate of the authority. Over local sockets; two ends stepped in turn.
#include "transport/tls.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <numeric>
#include <thread>
#include <vector>

#include "transport/stream.h"
#include "transport_certificates.h"

namespace fairring {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes pattern(std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::uint8_t>(i * 131 + (i >> 11));
  return bytes;
}

// Two ends of one connection.
struct Ends {
  Ends(const Tls& here, const Tls& there, std::uint64_t recordsPerKey = TlsStream::kRecordsPerKey) {
    std::array<int, 2> pair{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair.data()), 0);
    sockets = {Descriptor(pair[0]), Descriptor(pair[1])};
    streams[0] = here.stream(TlsStream::Side::Connector, pair[0], recordsPerKey);
    streams[1] = there.stream(TlsStream::Side::Acceptor, pair[1], recordsPerKey);
  }

  // Until both are done, or both have the reason why not.
  void shake() {
    for (int turn = 0; turn < 8; ++turn) {
      for (int end : {0, 1}) {
        if (!streams[end]->isOpen() && !errors[end]) errors[end] = streams[end]->handshake();
      }
    }
  }
  bool areOpen() const { return streams[0]->isOpen() && streams[1]->isOpen(); }

  // All bytes from one end to the other, in pieces, however much the socket takes.
  Bytes carry(int from, const Bytes& bytes, std::size_t pieceBytes) {
    Bytes received(bytes.size());
    std::size_t sent = 0;
    std::size_t got = 0;
    while (got < bytes.size()) {
      std::vector<iovec> pieces;
      for (std::size_t at = sent; at < bytes.size() && pieces.size() < 60; at += pieceBytes) {
        pieces.push_back({const_cast<std::uint8_t*>(bytes.data()) + at, std::min(pieceBytes, bytes.size() - at)});
      }
      if (const ssize_t took = streams[from]->send(pieces); took > 0) sent += static_cast<std::size_t>(took);
      const iovec room{received.data() + got, received.size() - got};
      if (const ssize_t count = streams[1 - from]->receive({&room, 1}); count > 0)
        got += static_cast<std::size_t>(count);
    }
    EXPECT_EQ(sent, bytes.size());
    return received;
  }
  ssize_t receiveOne(int end) {
    std::uint8_t byte = 0;
    const iovec room{&byte, 1};
    return streams[end]->receive({&room, 1});
  }

  std::array<Descriptor, 2> sockets;
  std::array<std::unique_ptr<TlsStream>, 2> streams;
  std::array<Error, 2> errors;
};

class TlsTest : public ::testing::Test {
 protected:
  static std::string refusal(const TlsFiles& files) {
    try {
      const Tls tls(files);
      return "";
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.error().kind(), ErrorKind::Configuration);
      return failure.what();
    }
  }

  Authority authority_;
  const Tls one_{authority_.issue("one")};
  const Tls other_{authority_.issue("other")};
};

TEST_F(TlsTest, BytesArriveAsTheyWereInPiecesOfAnySize) {
  Ends ends(one_, other_);
  ends.shake();
  ASSERT_TRUE(ends.areOpen()) << ends.errors[0].text() << ends.errors[1].text();
  const Bytes bytes = pattern((3 << 20) + 17);
  for (const std::size_t piece : {std::size_t{100'000}, std::size_t{16'384}, std::size_t{5'000}, std::size_t{64}}) {
    EXPECT_TRUE(ends.carry(0, bytes, piece) == bytes) << "pieces of " << piece;
  }
  EXPECT_TRUE(ends.carry(1, bytes, 40'000) == bytes);
}

TEST_F(TlsTest, BytesStayInOrderWhileTheOtherEndMakesRoom) {
  Ends ends(one_, other_);
  ends.shake();
  const Bytes bytes = pattern(24 << 20);
  Bytes received(bytes.size());
  const auto await = [&](int end, short event) {
    pollfd ready{.fd = ends.sockets[static_cast<std::size_t>(end)].get(), .events = event, .revents = 0};
    ::poll(&ready, 1, -1);
  };
  std::thread reader([&] {
    for (std::size_t got = 0; got < received.size();) {
      const iovec room{received.data() + got, received.size() - got};
      const ssize_t count = ends.streams[1]->receive({&room, 1});
      if (count > 0) got += static_cast<std::size_t>(count);
      if (count < 0) await(1, POLLIN);
    }
  });
  for (std::size_t sent = 0; sent < bytes.size();) {
    std::vector<iovec> pieces;  // as lanes have them: a header, then more than the socket takes
    for (std::size_t at = sent; at < bytes.size() && pieces.size() < 60; at += pieces.back().iov_len) {
      const std::size_t most = pieces.size() % 2 == 0 ? 64 : 300'000;
      pieces.push_back({const_cast<std::uint8_t*>(bytes.data()) + at, std::min(most, bytes.size() - at)});
    }
    const ssize_t took = ends.streams[0]->send(pieces);
    if (took > 0) sent += static_cast<std::size_t>(took);
    if (took < 0) await(0, POLLOUT);
  }
  while (ends.streams[0]->hasUnsent()) {
    await(0, POLLOUT);
    ends.streams[0]->flush();
  }
  reader.join();
  EXPECT_TRUE(received == bytes);
}

TEST_F(TlsTest, KeysAreRenewedWithoutALostByte) {
  const auto bytesOf = [&](std::uint64_t recordsPerKey) {
    Ends ends(one_, other_, recordsPerKey);
    ends.shake();
    const Bytes bytes = pattern(1 << 20);
    EXPECT_TRUE(ends.carry(0, bytes, 1'000'000) == bytes);
    std::uint8_t byte = 7;
    const iovec piece{&byte, 1};
    for (int i = 0; i < 2; ++i) EXPECT_EQ(ends.streams[0]->send({&piece, 1}), 1);
    int waiting = 0;
    ::ioctl(ends.sockets[1].get(), FIONREAD, &waiting);
    return waiting;
  };
  EXPECT_GT(bytesOf(1), bytesOf(1'000));
}

TEST_F(TlsTest, BothEndsExportTheSameKeyAndOtherConnectionsAnother) {
  Ends ends(one_, other_);
  Ends others(one_, other_);
  ends.shake();
  others.shake();
  EXPECT_EQ(ends.streams[0]->exporter(), ends.streams[1]->exporter());
  EXPECT_NE(ends.streams[0]->exporter(), others.streams[0]->exporter());
}

TEST_F(TlsTest, AnEndIsToldAnnouncedOrNotBehindWhatCameBefore) {
  for (const bool announced : {true, false}) {
    Ends ends(one_, other_);
    ends.shake();
    std::uint8_t byte = 7;
    const iovec piece{&byte, 1};
    EXPECT_EQ(ends.receiveOne(1), -1);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(ends.streams[0]->send({&piece, 1}), 1);
    if (announced) ends.streams[0]->close();
    ends.sockets[0].reset();
    EXPECT_EQ(ends.receiveOne(1), 1);
    EXPECT_EQ(ends.receiveOne(1), 0);
    EXPECT_EQ(ends.receiveOne(1), 0);
  }
}

TEST_F(TlsTest, BytesThatWereChangedOnTheWayAreAnError) {
  Ends ends(one_, other_);
  ends.shake();
  std::array<std::uint8_t, 40> forged{0x17, 3, 3, 0, 35};
  ASSERT_EQ(::send(ends.sockets[0].get(), forged.data(), forged.size(), 0), 40);
  EXPECT_EQ(ends.receiveOne(1), -1);
  EXPECT_NE(errno, EAGAIN);
  EXPECT_NE(ends.streams[1]->failure().text().find("TLS"), std::string::npos);
  EXPECT_EQ(ends.receiveOne(1), -1);
}

TEST_F(TlsTest, ACertificateOfAnotherAuthorityIsRefusedAndBothSidesAreTold) {
  Authority foreign;
  const Tls stranger(foreign.issue("stranger"));
  Ends ends(stranger, other_);
  ends.shake();
  EXPECT_TRUE(ends.errors[0]);
  EXPECT_EQ(ends.errors[0].kind(), ErrorKind::Configuration) << ends.errors[0].text();
  EXPECT_FALSE(ends.streams[1]->isOpen());
}

// The alert then meets a closed connection, and that must not hide the cause.
TEST_F(TlsTest, ARefusedCertificateIsReportedThoughTheOtherSideHasGone) {
  Authority foreign;
  const Tls stranger(foreign.issue("stranger"));
  Ends ends(other_, stranger);
  for (const auto& stream : ends.streams) EXPECT_FALSE(stream->handshake());
  ends.sockets[1].reset();
  const Error error = ends.streams[0]->handshake();
  EXPECT_EQ(error.kind(), ErrorKind::Configuration) << error.text();
  EXPECT_NE(error.text().find("certificate is not accepted here"), std::string::npos) << error.text();
}

TEST_F(TlsTest, TheSideThatConnectsIsAskedForItsCertificateToo) {
  Authority foreign;
  TlsFiles files = foreign.issue("stranger");
  TlsFiles trusting = files;
  std::ofstream(trusting.certificate + ".all")
      << std::ifstream(files.authority).rdbuf() << std::ifstream(authority_.file()).rdbuf();
  trusting.authority = trusting.certificate + ".all";
  const Tls stranger(trusting);  // which trusts both
  Ends ends(stranger, other_);
  ends.shake();
  EXPECT_EQ(ends.errors[1].kind(), ErrorKind::Configuration) << ends.errors[1].text();
  ASSERT_TRUE(ends.streams[0]->isOpen());  // it learns of it when it reads
  EXPECT_EQ(ends.receiveOne(0), -1);
  EXPECT_EQ(ends.streams[0]->failure().kind(), ErrorKind::Configuration);
}

TEST_F(TlsTest, FilesThatCannotServeAreRefusedWithWhatToDo) {
  const TlsFiles good = authority_.issue("good");
  EXPECT_EQ(refusal(good), "");
  TlsFiles mixed = good;
  mixed.key = authority_.issue("another").key;
  EXPECT_NE(refusal(mixed).find("does not match"), std::string::npos) << refusal(mixed);
  TlsFiles noKey = good;
  noKey.key = good.certificate;
  EXPECT_NE(refusal(noKey).find("gives no key"), std::string::npos) << refusal(noKey);
  TlsFiles noCertificate = good;
  noCertificate.certificate = good.key;
  EXPECT_NE(refusal(noCertificate).find("gives no certificate"), std::string::npos) << refusal(noCertificate);
  const TlsFiles expired = authority_.issue("expired", -1);
  EXPECT_NE(refusal(expired).find("expired"), std::string::npos) << refusal(expired);
  Authority foreign;
  TlsFiles untrusted = good;
  untrusted.authority = foreign.file();
  EXPECT_NE(refusal(untrusted).find("would be refused by other ranks"), std::string::npos) << refusal(untrusted);
}

}  // namespace
}  // namespace fairring
