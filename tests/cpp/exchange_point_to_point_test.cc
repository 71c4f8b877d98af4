#include "exchange/point_to_point.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "exchange/exchange.h"
#include "memory_channels.h"

namespace fairring {
namespace {

using testing::memoryChannels;
using testing::MemoryNetwork;

struct Ended {
  int times = 0;
  Error error;
  int from = -1;
};

struct Mailbox {  // of one receive
  std::vector<std::byte> room;
  Ended ended;
};

struct Parcel {  // of one send
  std::vector<std::byte> bytes;
  Ended ended;
};

class Rank {
 public:
  Rank(MemoryNetwork& network, int rank, int world, const PointToPointLimits& limits)
      : messages(loop, rank,
                 {[this](int, PointToPoint::Reach) { ++reaches; }, [](int, const Error&) {},
                  [this](const Error& error) {
                    failures.push_back(error);
                    loop.post([this, error] { messages.fail(error); });
                  },
                  [] {}},
                 limits) {
    for (const auto& [peer, channel] : memoryChannels(network, rank, world)) messages.use(peer, channel);
    network.receivers[rank] = &messages;
    network.loops[rank] = &loop;
  }

  std::shared_ptr<Parcel> send(int to, Label label, std::vector<std::byte> bytes) {
    auto parcel = std::make_shared<Parcel>(Parcel{std::move(bytes), {}});
    run([&] {
      messages.send({to, label, parcel->bytes.data(), parcel->bytes.size(), [parcel](const Error& error) {
                       ++parcel->ended.times;
                       parcel->ended.error = error;
                     }});
    });
    return parcel;
  }
  std::shared_ptr<Mailbox> receive(std::optional<int> from, Label label, std::size_t room) {
    auto mailbox = std::make_shared<Mailbox>();
    mailbox->room.resize(room);
    run([&] {
      messages.receive(
          {from, label, mailbox->room.data(), mailbox->room.size(), [mailbox](const Error& error, int sender) {
             ++mailbox->ended.times;
             mailbox->ended.error = error;
             mailbox->ended.from = sender;
           }});
    });
    return mailbox;
  }
  void run(const std::function<void()>& action) {
    loop.post(action);
    step();
  }
  void step() { loop.runOnce(std::chrono::milliseconds(0)); }

  Loop loop;
  std::vector<Error> failures;
  int reaches = 0;  // how often a connection was asked for
  PointToPoint messages;
};

class PointToPointTest : public ::testing::Test {
 protected:
  void make(int ranks, const PointToPointLimits& limits = {}) {
    for (int r = 0; r < ranks; ++r) ranks_.push_back(std::make_unique<Rank>(network_, r, ranks, limits));
  }
  Rank& rank(int number) { return *ranks_[static_cast<std::size_t>(number)]; }
  void deliver(std::pair<int, int> pair, std::size_t choice) {
    rank(pair.second).run([&] { network_.deliver(pair, choice); });
    rank(pair.first).step();
  }
  void deliverAll() {
    for (auto pairs = network_.pending(); !pairs.empty(); pairs = network_.pending()) deliver(pairs.front(), 0);
  }

  MemoryNetwork network_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

std::vector<std::byte> filled(std::size_t bytes, int seed) {
  std::vector<std::byte> all(bytes);
  for (std::size_t i = 0; i < bytes; ++i) all[i] = static_cast<std::byte>(static_cast<std::size_t>(seed) * 31 + i);
  return all;
}

constexpr Label kLabel{.context = 0, .tag = 7};

TEST_F(PointToPointTest, AnEmptyMessageIsReceivedToo) {
  make(2);
  const auto sent = rank(0).send(1, kLabel, {});
  const auto received = rank(1).receive(0, kLabel, 0);
  deliverAll();
  EXPECT_EQ(sent->ended.times, 1);
  EXPECT_EQ(received->ended.times, 1);
  EXPECT_FALSE(received->ended.error);
}

TEST_F(PointToPointTest, LargeMessagesDoNotTravelBeforeTheyAreReceived) {
  make(2);
  const auto sent = rank(0).send(1, kLabel, filled(1 << 20, 3));
  deliverAll();
  EXPECT_EQ(network_.bytesSent, 0U);
  EXPECT_EQ(sent->ended.times, 0);
  const auto received = rank(1).receive(0, kLabel, 1 << 20);
  deliverAll();
  EXPECT_EQ(sent->ended.times, 1);
  EXPECT_EQ(received->room, sent->bytes);
}

TEST_F(PointToPointTest, WhatNobodyReceivesTakesNoMoreThanTheCredit) {
  constexpr std::uint64_t kCredit = 10'000;
  make(2, {.eagerBytes = 1'000, .creditBytes = kCredit});
  std::vector<std::shared_ptr<Parcel>> sent;
  for (int i = 0; i < 100; ++i) {
    sent.push_back(rank(0).send(1, {0, static_cast<std::uint32_t>(i)}, filled(500, i)));
    deliverAll();
  }
  EXPECT_LE(network_.bytesSent, kCredit);
  for (int i = 99; i >= 0; --i) {  // the last first: those before it stand in nobody's way
    const auto received = rank(1).receive(0, {0, static_cast<std::uint32_t>(i)}, 500);
    deliverAll();
    EXPECT_EQ(received->room, filled(500, i));
  }
  EXPECT_TRUE(std::ranges::all_of(sent, [](const auto& one) { return one->ended.times == 1; }));
}

TEST_F(PointToPointTest, CreditComesBackWithWhatIsReceived) {
  make(2, {.eagerBytes = 1'000, .creditBytes = 4'000});
  for (int i = 0; i < 50; ++i) {
    const auto received = rank(1).receive(0, kLabel, 1'000);
    const auto sent = rank(0).send(1, kLabel, filled(1'000, i));
    EXPECT_EQ(network_.bytesSent, 1'000U * (static_cast<unsigned>(i) + 1)) << "eager, though all before were too";
    deliverAll();
    EXPECT_EQ(received->room, filled(1'000, i));
  }
}

TEST_F(PointToPointTest, AMessageMayBeShorterThanItsReceive) {
  make(2);
  for (const std::size_t bytes : {100U, 100'000U}) {
    const auto received = rank(1).receive(std::nullopt, kLabel, 2 * bytes);
    rank(0).send(1, kLabel, filled(bytes, 5));
    deliverAll();
    EXPECT_EQ(received->ended.from, 0);
    EXPECT_TRUE(std::equal(received->room.begin(), received->room.begin() + static_cast<std::ptrdiff_t>(bytes),
                           filled(bytes, 5).begin()));
    EXPECT_EQ(received->room[bytes], std::byte{0});
  }
}

TEST_F(PointToPointTest, AMessageThatIsTooLongEndsTheTwoCallsAlone) {
  make(2);
  for (const bool isPosted : {false, true}) {
    for (const std::size_t bytes : {100U, 100'000U}) {
      std::shared_ptr<Mailbox> received;
      if (isPosted) received = rank(1).receive(0, kLabel, bytes - 1);
      const auto sent = rank(0).send(1, kLabel, filled(bytes, 1));
      deliverAll();
      if (!isPosted) received = rank(1).receive(0, kLabel, bytes - 1);
      deliverAll();
      ASSERT_EQ(received->ended.times, 1);
      ASSERT_TRUE(received->ended.error);
      EXPECT_EQ(received->ended.error.kind(), ErrorKind::Mismatch);
      const std::string text = "rank 0 sent " + std::to_string(bytes) +
                               " bytes with tag 7 to rank 1, whose receive has room for " + std::to_string(bytes - 1);
      EXPECT_NE(received->ended.error.text().find(text), std::string::npos) << received->ended.error.text();
      EXPECT_EQ(sent->ended.times, 1);
      EXPECT_EQ(static_cast<bool>(sent->ended.error), bytes > 1'000) << "a small one had gone";
      EXPECT_EQ(received->room, std::vector<std::byte>(bytes - 1)) << "nothing of it is written";
    }
  }
  rank(0).send(1, kLabel, filled(10, 2));
  const auto next = rank(1).receive(0, kLabel, 10);
  deliverAll();
  EXPECT_EQ(next->room, filled(10, 2));
}

TEST_F(PointToPointTest, ContextsAreApart) {
  make(2);
  const auto other = rank(1).receive(0, {1, 7}, 10);
  const auto received = rank(1).receive(0, kLabel, 10);
  rank(0).send(1, kLabel, filled(10, 2));
  deliverAll();
  EXPECT_EQ(received->ended.times, 1);
  EXPECT_EQ(other->ended.times, 0);
}

TEST_F(PointToPointTest, WhatCameBeforeALeaveIsReceivedAndTheRestEnds) {
  make(3);
  const Error left = makeError(ErrorKind::PeerLeft, "rank 0 has left");
  rank(0).send(1, kLabel, filled(10, 2));
  EXPECT_TRUE(rank(1).messages.needs(0, 1));
  deliverAll();
  EXPECT_FALSE(rank(1).messages.needs(0, 1));
  rank(0).send(1, kLabel, filled(100'000, 2));
  deliverAll();
  const auto pending = rank(1).receive(0, {0, 8}, 10);
  const auto fromAny = rank(1).receive(std::nullopt, {0, 9}, 10);
  const auto unsent = rank(1).send(0, kLabel, filled(100'000, 2));
  EXPECT_TRUE(rank(1).messages.waitsFor(0));
  rank(1).run([&] { rank(1).messages.leave(0, left); });
  EXPECT_EQ(pending->ended.error.kind(), ErrorKind::PeerLeft);
  EXPECT_EQ(unsent->ended.error.kind(), ErrorKind::PeerLeft);
  EXPECT_EQ(fromAny->ended.times, 0) << "another may send it";
  const auto before = rank(1).receive(0, kLabel, 10);
  EXPECT_EQ(before->room, filled(10, 2));
  rank(1).reaches = 0;
  const auto announced = rank(1).receive(0, kLabel, 100'000);
  EXPECT_EQ(announced->ended.error.kind(), ErrorKind::PeerLeft);
  EXPECT_EQ(rank(1).send(0, kLabel, filled(10, 2))->ended.error.kind(), ErrorKind::PeerLeft);
  EXPECT_EQ(rank(1).reaches, 0) << "nobody looks for who has left";
  rank(2).send(1, {0, 9}, filled(10, 4));
  deliverAll();
  EXPECT_EQ(fromAny->ended.from, 2);
}

TEST_F(PointToPointTest, WhoWaitsForAnAcknowledgementNeedsThePeer) {
  make(2);
  const auto received = rank(1).receive(0, kLabel, 100'000);
  const auto sent = rank(0).send(1, kLabel, filled(100'000, 1));
  deliver({0, 1}, 0);  // the announcement
  deliver({1, 0}, 0);  // the grant: the bytes are on their way
  EXPECT_TRUE(rank(0).messages.needs(1, 0));
  deliver({0, 1}, 0);  // the bytes
  EXPECT_EQ(received->ended.times, 1);
  EXPECT_EQ(sent->ended.times, 1);
  EXPECT_FALSE(rank(0).messages.needs(1, 0));
}

TEST_F(PointToPointTest, ALostPeerEndsWhatIsOnItsWay) {
  make(2);
  const auto received = rank(1).receive(0, kLabel, 100'000);
  const auto sent = rank(0).send(1, kLabel, filled(100'000, 1));
  deliver({0, 1}, 0);  // the announcement
  deliver({1, 0}, 0);  // the grant: the bytes are on their way
  EXPECT_TRUE(rank(1).messages.needs(0, 1));
  rank(1).run([&] { rank(1).messages.lose(0, makeError(ErrorKind::PeerDied, "gone")); });
  rank(0).run([&] { rank(0).messages.lose(1, makeError(ErrorKind::PeerDied, "gone")); });
  EXPECT_EQ(received->ended.error.kind(), ErrorKind::PeerDied);
  EXPECT_EQ(sent->ended.error.kind(), ErrorKind::PeerDied);
  EXPECT_EQ(sent->ended.times, 1);
}

TEST_F(PointToPointTest, AnErrorEndsAllCallsOnce) {
  make(2);
  const auto large = rank(0).send(1, kLabel, filled(100'000, 1));
  const auto small = rank(0).send(1, kLabel, filled(10, 1));
  const auto pending = rank(0).receive(std::nullopt, kLabel, 10);
  rank(0).run([&] { rank(0).messages.fail(makeError(ErrorKind::Aborted, "enough")); });
  for (const Ended& ended : {large->ended, small->ended, pending->ended}) {
    EXPECT_EQ(ended.times, 1);
    EXPECT_EQ(ended.error.kind(), ErrorKind::Aborted);
  }
}

using Header = PointToPointHeader;

Header eager(std::uint64_t number, std::uint64_t bytes) {
  return {.kind = Header::Kind::Eager, .number = number, .bytes = bytes};
}

TEST_F(PointToPointTest, APeerThatBreaksTheRulesIsRefused) {
  const auto isRefused = [this](const std::vector<Header>& headers) {
    ranks_.clear();
    make(2, {.eagerBytes = 1'000, .creditBytes = 2'000});
    rank(1).run([&] {
      for (const Header& one : headers) {
        const MessageHeader header = onWire(one);
        if (header.bytes > 0 && rank(1).messages.place(0, header) == nullptr) return;
        rank(1).messages.arrived(0, header);
      }
    });
    return rank(1).failures.size() == 1 && rank(1).failures[0].kind() == ErrorKind::Connection;
  };
  EXPECT_FALSE(isRefused({eager(0, 900), eager(1, 900)}));
  EXPECT_TRUE(isRefused({eager(0, 900), eager(1, 900), eager(2, 900)})) << "beyond its credit";
  EXPECT_TRUE(isRefused({eager(0, 1'001)})) << "too large to be eager";
  EXPECT_TRUE(isRefused({eager(0, 9), eager(0, 9)})) << "one number twice";
  EXPECT_TRUE(isRefused({{.kind = Header::Kind::Grant}})) << "nothing was announced";
  EXPECT_TRUE(isRefused({{.kind = Header::Kind::Refusal}}));
  EXPECT_TRUE(isRefused({{.kind = Header::Kind::Data, .bytes = 9}})) << "nothing was granted";
  EXPECT_TRUE(isRefused({{.kind = Header::Kind::Data}}));
  EXPECT_TRUE(isRefused({{.kind = Header::Kind::CreditUpdate, .taken = 1}})) << "nothing was sent";
  EXPECT_TRUE(isRefused({eager(0, 9), {.kind = Header::Kind::Data}})) << "an eager message has no second part";
  EXPECT_TRUE(isRefused({{.kind = Header::Kind{3}}})) << "a kind that only slices have";
  EXPECT_TRUE(isRefused({{.kind = Header::Kind{3}, .bytes = 9}}));
}

// A message that is half here is not ended by another of its number, whose bytes would come into memory that was given
// back.
TEST_F(PointToPointTest, APartOfAMessageIsNotTakenForAllOfIt) {
  const Header all{.kind = Header::Kind::Data, .bytes = 5'000};
  for (const std::uint64_t bytes : {std::uint64_t{0}, all.bytes}) {
    ranks_.clear();
    make(2, {.eagerBytes = 1'000, .creditBytes = 2'000});
    const auto received = rank(1).receive(0, {}, all.bytes);
    rank(1).run([&] {
      rank(1).messages.arrived(0, onWire(Header{.kind = Header::Kind::Announcement, .size = all.bytes}));
      EXPECT_EQ(rank(1).messages.place(0, onWire(all)), received->room.data());
      Header second = all;
      second.bytes = bytes;
      bytes == 0 ? rank(1).messages.arrived(0, onWire(second)) : (void)rank(1).messages.place(0, onWire(second));
    });
    EXPECT_EQ(rank(1).failures.size(), 1U) << bytes << " bytes";
    rank(1).step();
    EXPECT_EQ(received->ended.times, 1);
    EXPECT_TRUE(received->ended.error);
  }
}

struct Planned {
  int from;
  int to;
  std::uint32_t tag;
  std::vector<std::byte> bytes;
};

// All sends, receives and arrivals in any order: each message comes whole, and in its sender's order. Receives for a
// tag name their source, or all of them take any.
TEST_F(PointToPointTest, RandomSchedulesKeepTheOrderOfEachSourceAndTag) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&random](std::size_t count) { return random() % count; };
    ranks_.clear();
    network_ = {};
    const int ranks = 2 + static_cast<int>(below(3));
    make(ranks, {.eagerBytes = 200, .creditBytes = 300 + below(1'500)});
    std::map<std::pair<int, std::uint32_t>, bool> takesAny;  // by receiver and tag
    std::vector<std::function<void()>> actions;
    std::map<int, std::deque<Planned>> toSend;
    struct ToReceive {
      std::optional<int> from;
      std::uint32_t tag;
    };
    std::map<int, std::vector<ToReceive>> toReceive;
    const std::size_t count = 1 + below(60);
    for (std::size_t i = 0; i < count; ++i) {
      const int from = static_cast<int>(below(static_cast<std::size_t>(ranks)));
      const int to = (from + 1 + static_cast<int>(below(static_cast<std::size_t>(ranks) - 1))) % ranks;
      const auto tag = static_cast<std::uint32_t>(below(3));
      const auto [any, isNew] = takesAny.try_emplace({to, tag}, below(2) == 0);
      toSend[from].push_back({from, to, tag, filled(below(4) == 0 ? 0 : below(500), static_cast<int>(i))});
      toReceive[to].push_back({any->second ? std::nullopt : std::optional(from), tag});
    }
    for (auto& [to, receives] : toReceive) std::ranges::shuffle(receives, random);
    std::map<std::tuple<int, int, std::uint32_t>, std::vector<std::vector<std::byte>>> sent;
    std::map<std::tuple<int, std::uint32_t>, std::vector<std::shared_ptr<Mailbox>>> received;
    std::vector<std::shared_ptr<Parcel>> parcels;
    const auto anySending = [&] {
      return std::ranges::any_of(toSend, [](const auto& entry) { return !entry.second.empty(); });
    };
    const auto anyReceiving = [&] {
      return std::ranges::any_of(toReceive, [](const auto& entry) { return !entry.second.empty(); });
    };
    while (anySending() || anyReceiving() || !network_.pending().empty()) {
      const int who = static_cast<int>(below(static_cast<std::size_t>(ranks)));
      switch (below(3)) {
        case 0: {
          if (toSend[who].empty()) break;
          const Planned one = toSend[who].front();
          toSend[who].pop_front();
          sent[{one.from, one.to, one.tag}].push_back(one.bytes);
          parcels.push_back(rank(who).send(one.to, {0, one.tag}, one.bytes));
          break;
        }
        case 1: {
          if (toReceive[who].empty()) break;
          const ToReceive one = toReceive[who].back();
          toReceive[who].pop_back();
          received[{who, one.tag}].push_back(rank(who).receive(one.from, {0, one.tag}, 500));
          break;
        }
        default: {
          const auto pairs = network_.pending();
          if (!pairs.empty()) deliver(pairs[below(pairs.size())], random());
        }
      }
    }
    for (const auto& parcel : parcels) ASSERT_EQ(parcel->ended.times, 1);
    for (const auto& [where, mailboxes] : received) {
      std::map<int, std::size_t> next;  // of each source's
      for (const auto& mailbox : mailboxes) {
        ASSERT_EQ(mailbox->ended.times, 1);
        ASSERT_FALSE(mailbox->ended.error) << mailbox->ended.error.text();
        const int from = mailbox->ended.from;
        const auto& [to, tag] = where;
        const std::vector<std::byte>& expected = sent.at({from, to, tag}).at(next[from]++);
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), mailbox->room.begin()));
      }
    }
    for (const auto& one : ranks_) EXPECT_TRUE(one->failures.empty());
  }
}

}  // namespace
}  // namespace fairring
