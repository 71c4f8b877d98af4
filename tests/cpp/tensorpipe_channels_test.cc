// TensorPipe's channels: the conformance test for each transport, and the admission of peers.
#include "transport/tensorpipe_channel.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <string>

#include "transport/tensorpipe_transport.h"
#include "transport_channels_delivery.h"
#include "transport_channels_ending.h"
#include "transport_contacts.h"

namespace fairring {

namespace {

constexpr Secret kSecret{std::byte{42}};

constexpr char kUv[] = "uv";
constexpr char kShm[] = "shm";
constexpr char kIbv[] = "ibv";

template <const char* Name>
struct TensorPipe {
  static std::string obstacle() { return tensorPipeObstacle(Name); }
  static Joined join(Loop& loop, MessageReceiver& receiver, Seat seat) {
    ChannelSettings settings;
    settings.bindAddress = "127.0.0.1";
    settings.secret = kSecret;
    return joinByContacts(tensorPipeTransport(Name).make, settings, loop, receiver, std::move(seat));
  }
};

}  // namespace

INSTANTIATE_TYPED_TEST_SUITE_P(TensorPipeUv, ChannelsDelivery, TensorPipe<kUv>);
INSTANTIATE_TYPED_TEST_SUITE_P(TensorPipeUv, ChannelsEnding, TensorPipe<kUv>);
INSTANTIATE_TYPED_TEST_SUITE_P(TensorPipeShm, ChannelsDelivery, TensorPipe<kShm>);
INSTANTIATE_TYPED_TEST_SUITE_P(TensorPipeShm, ChannelsEnding, TensorPipe<kShm>);
INSTANTIATE_TYPED_TEST_SUITE_P(TensorPipeIbv, ChannelsDelivery, TensorPipe<kIbv>);
INSTANTIATE_TYPED_TEST_SUITE_P(TensorPipeIbv, ChannelsEnding, TensorPipe<kIbv>);

namespace {

// Ranks 0 and 1, made and told about each other as the test likes.
class TensorPipeChannels : public ::testing::Test {
 protected:
  struct Rank {
    Loop loop;
    Recorder receiver;
    std::shared_ptr<Channel> channel;
    bool isOpen() const { return channel && channel->isOpen(); }
  };

  ~TensorPipeChannels() override {
    for (Rank& rank : ranks_) rank.channel.reset();
  }

  void make(int rank, const std::string& bindAddress = "127.0.0.1", const Secret& secret = kSecret) {
    on(rank, [&] {
      Rank& made = ranks_[rank];
      made.channel = nullptr;
      ChannelSettings settings;
      settings.rank = rank;
      settings.peers = {1 - rank};
      settings.bindAddress = bindAddress;
      settings.secret = secret;
      made.channel = tensorPipeTransport("uv").make(made.loop, settings, made.receiver).at(1 - rank);
    });
  }
  void connect(const std::string& contact) {
    on(1, [&] { ranks_[1].channel->connect(contact); });
  }
  bool until(const std::function<bool()>& condition) {
    const auto deadline = Loop::Clock::now() + std::chrono::seconds(30);
    while (!condition()) {
      if (Loop::Clock::now() > deadline) return false;
      for (Rank& rank : ranks_) rank.loop.runOnce(std::chrono::milliseconds(1));
    }
    return true;
  }
  // The error that ended rank 1's channel to rank 0.
  Error end() {
    EXPECT_TRUE(until([&] { return !ranks_[1].receiver.ends.empty(); }));
    return ranks_[1].receiver.ends.at(0).error;
  }
  std::string contact() const { return ranks_[0].channel->contact(); }

  std::array<Rank, 2> ranks_;

 private:
  // An exception of the task is thrown here, and not reported to the loop's handlers.
  void on(int rank, const Loop::Task& task) {
    std::exception_ptr thrown;
    ranks_[rank].loop.post([&] {
      try {
        task();
      } catch (...) {
        thrown = std::current_exception();
      }
    });
    ranks_[rank].loop.runOnce(std::chrono::milliseconds(0));
    if (thrown) std::rethrow_exception(thrown);
  }
};

int portOf(const std::string& contact) { return std::stoi(contact.substr(contact.rfind(':') + 1)); }

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// The system is asked, because TensorPipe would suffer from a connection (see below). A port can be bound twice, with
// SO_REUSEADDR, unless something listens on it.
bool somebodyListens(int port) {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const sockaddr_in address = loopback(port);
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0;
}

TEST_F(TensorPipeChannels, NothingListensOnceAllPeersAreIn) {
  make(0);
  make(1);
  EXPECT_EQ(ranks_[1].channel->contact(), "");
  const int port = portOf(contact());
  EXPECT_TRUE(somebodyListens(port));
  connect(contact());
  ASSERT_TRUE(until([&] { return ranks_[0].isOpen() && ranks_[1].isOpen(); }));
  EXPECT_TRUE(until([&] { return !somebodyListens(port); }));
}

// TensorPipe's listener ends with the first connection that ends before its greeting. An error is better than a wait.
TEST_F(TensorPipeChannels, APortScanWhileConnectingIsAnErrorThatNamesThePeer) {
  make(0);
  {
    const Descriptor scanner(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = loopback(portOf(contact()));
    ASSERT_EQ(::connect(scanner.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ASSERT_TRUE(until([&] { return !ranks_[0].receiver.ends.empty(); }));
  EXPECT_NE(ranks_[0].receiver.ends[0].error.text().find("can't listen for rank 1"), std::string::npos);
}

TEST_F(TensorPipeChannels, AStrangerWithAnotherSecretIsShutOutAndTheRankItselfStillGetsIn) {
  make(0);
  make(1, "127.0.0.1", randomSecret());
  connect(contact());
  const Error error = end();
  EXPECT_EQ(error.kind(), ErrorKind::Connection);
  EXPECT_NE(error.text().find("rank 0"), std::string::npos) << error.text();
  EXPECT_FALSE(ranks_[1].isOpen());
  make(1);
  connect(contact());
  EXPECT_TRUE(until([&] { return ranks_[0].isOpen() && ranks_[1].isOpen(); }));
  EXPECT_TRUE(ranks_[0].receiver.ends.empty());
}

TEST_F(TensorPipeChannels, AListenerWithAnotherSecretIsNotTrusted) {
  make(0, "127.0.0.1", randomSecret());
  make(1);
  connect(contact());
  EXPECT_EQ(end().kind(), ErrorKind::Connection);
  EXPECT_FALSE(ranks_[0].isOpen() || ranks_[1].isOpen());
}

TEST_F(TensorPipeChannels, AContactOfAnotherTransportOrOfNoneIsAnErrorThatNamesThePeer) {
  make(1);
  connect("5:nonce,13:shm:elsewhere,11:shm://00001,");
  EXPECT_NE(end().text().find("rank 1 can't reach rank 0"), std::string::npos) << end().text();
  make(1);
  ranks_[1].receiver.ends.clear();
  connect("5:nonce,4:uv:*,12:uv://nowhere,");
  EXPECT_NE(end().text().find("uv://nowhere"), std::string::npos) << end().text();
}

TEST_F(TensorPipeChannels, AnAddressThatIsNotOursIsAFailureAndNotTheEndOfTheProcess) {
  for (const std::string address : {"192.0.2.1", "nonsense", ""}) {
    try {
      make(0, address);
      FAIL() << "listens on \"" << address << '"';
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.error().kind(), ErrorKind::Configuration);
      EXPECT_NE(std::string(failure.what()).find("can't listen on"), std::string::npos) << failure.what();
    }
  }
}

TEST(TensorPipeObstacle, NamesTheTransportsThatThereAre) {
  EXPECT_NE(tensorPipeObstacle("tcp").find("choose uv, shm or ibv"), std::string::npos);
  EXPECT_EQ(tensorPipeObstacle("uv"), "");
}

}  // namespace

}  // namespace fairring
