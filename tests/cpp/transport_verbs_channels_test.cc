// Channels over verbs: the conformance test on simulated ports and on this machine's, and random scripts of messages,
// with and without queue pairs that break.
#include "transport/verbs_channel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/fields.h"
#include "simulated_verbs.h"
#include "transport/verbs_hardware.h"
#include "transport/verbs_slot.h"
#include "transport_channels_delivery.h"
#include "transport_channels_ending.h"
#include "transport_contacts.h"

namespace fairring {

namespace {

MakeChannels makerOn(SimulatedVerbs& network) {
  return [open = network.opener()](Loop& loop, const ChannelSettings& settings, MessageReceiver& receiver) {
    return makeVerbsChannels(open, loop, settings, receiver);
  };
}

// All messages go in parts through the slots.
struct UnregisteredMemory {
  static constexpr bool kTellsNoDeath = true;
  static std::string obstacle() { return ""; }
  static Joined join(Loop& loop, MessageReceiver& receiver, Seat seat) {
    static SimulatedVerbs network(1);
    return joinByContacts(makerOn(network), {}, loop, receiver, std::move(seat));
  }
};

// All memory counts as staging: large messages are read.
struct RegisteredAll {
  static constexpr bool kTellsNoDeath = true;
  static std::string obstacle() { return ""; }
  static Joined join(Loop& loop, MessageReceiver& receiver, Seat seat) {
    static SimulatedVerbs network(2);
    ChannelSettings settings;
    constexpr std::size_t kGrain = 4096;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): nothing is read there
    settings.staging = {reinterpret_cast<std::byte*>(kGrain), std::size_t{1} << 62};
    return joinByContacts(makerOn(network), settings, loop, receiver, std::move(seat));
  }
};

struct ThisMachines {
  static constexpr bool kTellsNoDeath = true;
  static std::string obstacle() { return verbsObstacle(verbsOffer(2, 0)); }
  static Joined join(Loop& loop, MessageReceiver& receiver, Seat seat) {
    ChannelSettings settings;
    settings.rdmaFabric = verbsOffer(2, 0).fabric;
    return joinByContacts(verbsTransport().make, settings, loop, receiver, std::move(seat));
  }
};

}  // namespace

INSTANTIATE_TYPED_TEST_SUITE_P(UnregisteredMemory, ChannelsDelivery, UnregisteredMemory);
INSTANTIATE_TYPED_TEST_SUITE_P(UnregisteredMemory, ChannelsEnding, UnregisteredMemory);
INSTANTIATE_TYPED_TEST_SUITE_P(RegisteredAll, ChannelsDelivery, RegisteredAll);
INSTANTIATE_TYPED_TEST_SUITE_P(RegisteredAll, ChannelsEnding, RegisteredAll);
INSTANTIATE_TYPED_TEST_SUITE_P(ThisMachines, ChannelsDelivery, ThisMachines);
INSTANTIATE_TYPED_TEST_SUITE_P(ThisMachines, ChannelsEnding, ThisMachines);

namespace {

// Two ranks, each with staging; a message's place is at the same offset in the other's, or in memory aside.
class VerbsPair {
 public:
  static constexpr std::size_t kStaging = 24 * kMiB;

  struct Receiver final : MessageReceiver {
    std::byte* place(int, const MessageHeader& header) override {
      if (header.fields[1] != kAside) return staging.data() + header.fields[1];
      Bytes& bytes = aside[header.fields[0]];
      bytes.resize(header.bytes);
      return bytes.data();
    }
    void arrived(int, const MessageHeader& header) override { arrivals.push_back(header); }
    void ended(int, const Error& error) override { ends.push_back(error); }

    Bytes staging = Bytes(kStaging);
    std::map<std::uint64_t, Bytes> aside;
    std::vector<MessageHeader> arrivals;
    std::vector<Error> ends;
  };
  static constexpr std::uint64_t kAside = ~0ULL;

  // patience: with a break. None: the channels stay broken.
  explicit VerbsPair(SimulatedVerbs& network, std::chrono::milliseconds patience = {}) : network_(network) {
    for (int rank = 0; rank < 2; ++rank) {
      on(rank, [&] {
        ChannelSettings settings;
        settings.rank = rank;
        settings.peers = {1 - rank};
        settings.staging = receivers[rank].staging;
        settings.relinking.patience = patience;
        if (patience.count() > 0) {
          settings.relinking.sendContact = [this, rank](int, const std::string& contact) {
            mail[1 - rank].push_back(contact);
          };
        }
        channels_[rank] = makerOn(network)(loops_[rank], settings, receivers[rank]).at(1 - rank);
      });
    }
    std::string words = channels_[0]->contact();
    on(1, [&] { words = channels_[1]->connect(words); });
    on(0, [&] { words = channels_[0]->connect(words); });
    EXPECT_EQ(words, "");
    EXPECT_TRUE(until([&] { return channels_[0]->isOpen() && channels_[1]->isOpen(); }));
  }
  VerbsPair(const VerbsPair&) = delete;
  VerbsPair& operator=(const VerbsPair&) = delete;
  ~VerbsPair() {
    for (int rank = 0; rank < 2; ++rank) on(rank, [&] { channels_[rank].reset(); });
  }

  void on(int rank, const Loop::Task& task) {
    loops_[rank].post(task);
    loops_[rank].runOnce(std::chrono::milliseconds(0));
  }
  void send(int from, const std::vector<Message>& messages) {
    ++sent[from];
    this->messages += messages.size();
    on(from, [&] { channels_[from]->send(messages, [this, from] { ++released[from]; }); });
  }
  bool until(const std::function<bool()>& condition) {
    const auto deadline = Loop::Clock::now() + std::chrono::seconds(30);
    while (!condition()) {
      if (Loop::Clock::now() > deadline) return false;
      network_.takeSteps();
      now_ += std::chrono::milliseconds(1);
      for (int rank = 0; rank < 2; ++rank) {
        loops_[rank].runOnce(std::chrono::milliseconds(0));
        bringMail(rank);
      }
    }
    return true;
  }
  // A contact that has come to the rank, now and then. Those that follow it wait.
  void bringMail(int rank) {
    if (mail[rank].empty() || script_() % 4 > 0) return;
    const std::string contact = mail[rank].front();
    mail[rank].pop_front();
    ++contacts;
    on(rank, [&] {
      if (const std::string answer = channels_[rank]->connect(contact); !answer.empty())
        mail[1 - rank].push_back(answer);
    });
  }
  std::size_t arrived() const { return receivers[0].arrivals.size() + receivers[1].arrivals.size(); }
  void turns(int count) {
    until([&] { return --count < 0; });
  }

  std::array<Receiver, 2> receivers;
  std::array<int, 2> sent{};
  std::array<int, 2> released{};
  std::uint64_t nextId = 0;
  std::size_t messages = 0;
  std::array<std::deque<std::string>, 2> mail;  // by the rank that it is for
  std::size_t contacts = 0;                     // that have come

  Channel& channel(int rank) { return *channels_[rank]; }

 private:
  SimulatedVerbs& network_;
  Loop::Clock::time_point now_ = Loop::Clock::now();
  std::minstd_rand script_;
  std::array<Loop, 2> loops_{Loop([this] { return now_; }), Loop([this] { return now_; })};
  std::array<std::shared_ptr<Channel>, 2> channels_;
};

Message messageAt(std::uint64_t number, const Bytes& staging, std::uint64_t offset, std::uint64_t bytes,
                  std::uint64_t place, TrafficClass trafficClass = TrafficClass::Bulk) {
  return {{.kind = 1, .shortFields = {}, .fields = {number, place}, .bytes = bytes, .lastField = offset},
          staging.data() + offset,
          trafficClass};
}

TEST(VerbsChannels, LargeMessagesAreReadFromStagingIntoStagingAndNothingElseIsRegistered) {
  SimulatedVerbs network(3, SimulatedVerbs::Steps::ByTest);
  VerbsPair pair(network);
  EXPECT_EQ(network.counts().registrations, 4U) << "staging and slots of two ranks";
  EXPECT_EQ(network.counts().readableRegistrations, 2U) << "staging alone";
  EXPECT_EQ(network.counts().readablePairs, 2U) << "those that carry reads alone";
  const Bytes bytes = pattern(3 * kMiB, 1);
  std::ranges::copy(bytes, pair.receivers[0].staging.begin());
  const std::uint64_t sentBefore = network.counts().sentBytes;
  pair.send(0, {messageAt(1, pair.receivers[0].staging, 0, bytes.size(), 0)});
  ASSERT_TRUE(pair.until([&] { return pair.released[0] == 1; }));
  EXPECT_TRUE(std::ranges::equal(bytes, std::span(pair.receivers[1].staging).first(bytes.size())));
  EXPECT_EQ(network.counts().readBytes, bytes.size());
  EXPECT_LT(network.counts().sentBytes - sentBefore, kKiB);
  EXPECT_EQ(network.counts().registrations, 4U);
}

TEST(VerbsChannels, EachOfTheThreeGreetingsAndTheSignalBeforeThemFillsASlot) {
  SimulatedVerbs network(12, SimulatedVerbs::Steps::ByTest);
  const VerbsPair pair(network);
  EXPECT_EQ(network.counts().sentBytes, 4 * kSlotBytes);
}

TEST(VerbsChannels, ALargeMessageForMemoryAsideGoesInParts) {
  SimulatedVerbs network(4, SimulatedVerbs::Steps::ByTest);
  VerbsPair pair(network);
  const Bytes bytes = pattern(60 * kKiB, 1);
  std::ranges::copy(bytes, pair.receivers[0].staging.begin());
  pair.send(0, {messageAt(1, pair.receivers[0].staging, 0, bytes.size(), VerbsPair::kAside)});
  ASSERT_TRUE(pair.until([&] { return pair.released[0] == 1 && !pair.receivers[1].arrivals.empty(); }));
  EXPECT_TRUE(pair.receivers[1].aside.at(1) == bytes);
  EXPECT_EQ(network.counts().readBytes, 0U);
}

TEST(VerbsChannels, AnExpressMessageOvertakesBulk) {
  SimulatedVerbs network(5, SimulatedVerbs::Steps::ByTest);
  VerbsPair pair(network);
  const Bytes& staging = pair.receivers[0].staging;
  for (std::uint64_t number = 0; number < 2; ++number) {
    pair.send(0, {messageAt(number, staging, number * 2 * kMiB, 2 * kMiB, number * 2 * kMiB)});
  }
  pair.send(0, {messageAt(2, staging, 0, 20 * kKiB, VerbsPair::kAside, TrafficClass::Express)});
  pair.send(0, {messageAt(3, staging, 0, 1, VerbsPair::kAside, TrafficClass::Express)});
  ASSERT_TRUE(pair.until([&] { return pair.receivers[1].arrivals.size() == 4; }));
  EXPECT_EQ(pair.receivers[1].arrivals.back().fields[0], 1U);
}

TEST(VerbsChannels, ThePeerLearnsWhyAChannelWasBrokenOff) {
  SimulatedVerbs network(7, SimulatedVerbs::Steps::ByTest);
  VerbsPair pair(network);
  const Bytes& staging = pair.receivers[0].staging;
  network.breakAfter(1, SimulatedVerbs::kNoRight);  // that is the read; the announcement goes first
  pair.send(0, {messageAt(1, staging, 0, 100 * kKiB, 0)});
  ASSERT_TRUE(pair.until([&] { return !pair.receivers[0].ends.empty() && !pair.receivers[1].ends.empty(); }));
  EXPECT_NE(pair.receivers[0].ends[0].text().find("rank 1 broke RDMA off: RDMA to rank 0"), std::string::npos)
      << pair.receivers[0].ends[0].text();
}

TEST(VerbsChannels, ADeviceThatTellsNoMoreEndsItsChannelsAndNothingElse) {
  SimulatedVerbs network(8, SimulatedVerbs::Steps::ByTest);
  VerbsPair pair(network);
  network.failPolls();
  for (int rank = 0; rank < 2; ++rank) pair.send(rank, {grantMessage(1)});
  ASSERT_TRUE(pair.until([&] { return !pair.receivers[0].ends.empty() && !pair.receivers[1].ends.empty(); }));
  for (const VerbsPair::Receiver& receiver : pair.receivers) {
    ASSERT_EQ(receiver.ends.size(), 1U);
    EXPECT_NE(receiver.ends[0].text().find("can't be polled"), std::string::npos) << receiver.ends[0].text();
  }
}

TEST(VerbsChannels, ADeviceThatReportsItsFailureEndsItsChannelsAtOnceWithTheEventsName) {
  using Kind = VerbsAsyncEvent::Kind;
  for (const Kind kind : {Kind::DeviceFailed, Kind::QueuePairFailed}) {
    SimulatedVerbs network(10, SimulatedVerbs::Steps::ByTest);
    VerbsPair pair(network);
    network.report(1, {kind, 1, "local catastrophic error"});
    ASSERT_TRUE(pair.until([&] { return !pair.receivers[1].ends.empty(); }));
    for (const char* words : {"simulated port", "the device reported 'local catastrophic error'"}) {
      EXPECT_NE(pair.receivers[1].ends[0].text().find(words), std::string::npos) << pair.receivers[1].ends[0].text();
    }
  }
}

TEST(VerbsChannels, APortThatGoesDownAndUpIsOnlySpokenOfWhenTheChannelBreaks) {
  SimulatedVerbs network(11, SimulatedVerbs::Steps::ByTest);
  VerbsPair pair(network);
  for (const char* text : {"port error", "port active"}) network.report(0, {{}, 0, text});
  pair.send(0, {grantMessage(1)});
  ASSERT_TRUE(pair.until([&] { return pair.arrived() == 1 && pair.released[0] == 1; }));
  network.breakAfter(0);
  pair.send(0, {grantMessage(2)});
  ASSERT_TRUE(pair.until([&] { return !pair.receivers[0].ends.empty(); }));
  const std::string told = pair.receivers[0].ends[0].text();
  EXPECT_NE(told.find("the port has reported: port error, port active"), std::string::npos) << told;
}

TEST(VerbsChannels, AChannelThatHasEndedHasNoContact) {
  SimulatedVerbs network(9, SimulatedVerbs::Steps::ByTest);
  VerbsPair pair(network);
  EXPECT_NE(pair.channel(0).contact(), "");
  pair.on(0, [&] { pair.channel(0).close(); });
  EXPECT_EQ(pair.channel(0).contact(), "");
}

TEST(VerbsChannels, AContactThatIsNoneEndsTheChannelWithAnErrorThatNamesThePeer) {
  SimulatedVerbs network(6);
  Loop loop;
  VerbsPair::Receiver receiver;
  std::shared_ptr<Channel> channel;
  loop.post([&] {
    ChannelSettings settings;
    settings.rank = 1;
    settings.peers = {0};
    channel = makerOn(network)(loop, settings, receiver).at(0);
    EXPECT_EQ(channel->connect("7:verbs 9,"), "");
  });
  for (int turn = 0; turn < 3; ++turn) loop.runOnce(std::chrono::milliseconds(0));
  ASSERT_EQ(receiver.ends.size(), 1U);
  EXPECT_NE(receiver.ends[0].text().find("rank 0 sent a contact"), std::string::npos) << receiver.ends[0].text();
  loop.post([&] { channel.reset(); });
  loop.runOnce(std::chrono::milliseconds(0));
}

struct Script {
  explicit Script(unsigned seed) : random(seed) {}
  std::size_t below(std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random); }
  std::mt19937 random;
};

// Messages of random sizes, both ways: from the first MiB of staging or from elsewhere, into staging behind that or
// into memory aside.
const Bytes& elsewhere() {
  static const Bytes bytes = pattern(kMiB, 77);
  return bytes;
}

void sendSome(Script& script, VerbsPair& pair, int messages) {
  constexpr std::size_t kMostStaged = 100'000;
  for (; messages > 0; --messages) {
    const int from = static_cast<int>(script.below(2));
    const Bytes& memory = script.below(4) == 0 ? elsewhere() : pair.receivers[from].staging;
    const std::array<std::size_t, 4> sizes{0, 1 + script.below(200), 1 + script.below(20'000),
                                           1 + script.below(kMostStaged)};
    const std::uint64_t id = pair.nextId++;
    const std::uint64_t place = script.below(4) == 0 ? VerbsPair::kAside : kMiB + id * kMostStaged;
    std::vector<Message> batch{messageAt(id, memory, script.below(1000), sizes[script.below(4)], place,
                                         script.below(3) == 0 ? TrafficClass::Express : TrafficClass::Bulk)};
    if (script.below(2) == 0) batch.push_back(grantMessage(id));
    pair.send(from, batch);
  }
}

void expectWhole(VerbsPair& pair, unsigned seed) {
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(pair.receivers[rank].ends.empty());
    for (const MessageHeader& header : pair.receivers[rank].arrivals) {
      if (header.bytes == 0) continue;
      const std::span there(pair.receivers[rank].place(1 - rank, header), header.bytes);
      const auto is = [&](const Bytes& memory) {
        return std::ranges::equal(there, std::span(memory).subspan(header.lastField, header.bytes));
      };
      EXPECT_TRUE(is(pair.receivers[1 - rank].staging) || is(elsewhere())) << "seed " << seed;
    }
  }
}

TEST(VerbsChannels, EveryMessageArrivesWholeAndIsReleasedInAnyOrderOfCompletions) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    SimulatedVerbs network(seed, SimulatedVerbs::Steps::ByTest);
    VerbsPair pair(network);
    Script script(seed);
    for (int rank = 0; rank < 2; ++rank)
      std::ranges::copy(pattern(kMiB, static_cast<std::uint64_t>(rank)), pair.receivers[rank].staging.begin());
    sendSome(script, pair, 60);
    ASSERT_TRUE(pair.until([&] { return pair.released == pair.sent; })) << "seed " << seed;
    ASSERT_TRUE(pair.until([&] { return pair.arrived() == pair.messages; })) << "seed " << seed;
    expectWhole(pair, seed);
  }
}

constexpr std::chrono::minutes kPatience{1};

// A break may come on one side, or on both, with requests delivered or not, and again before the last one is mended.
TEST(VerbsChannels, EveryMessageArrivesOnceHoweverOftenQueuePairsBreak) {
  std::size_t contacts = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    SimulatedVerbs network(seed, SimulatedVerbs::Steps::ByTest);
    VerbsPair pair(network, kPatience);
    Script script(seed);
    for (int rank = 0; rank < 2; ++rank)
      std::ranges::copy(pattern(kMiB, static_cast<std::uint64_t>(rank)), pair.receivers[rank].staging.begin());
    network.breakOften(1 + script.below(12), 1 + script.below(120));
    for (int burst = 0; burst < 8; ++burst) {
      sendSome(script, pair, 20);
      pair.turns(static_cast<int>(script.below(300)));
      for (const int rank : {0, 1}) {
        if (script.below(8) == 0) network.breakPairsOf(rank);
      }
    }
    ASSERT_TRUE(pair.until([&] { return pair.released == pair.sent; })) << "seed " << seed;
    ASSERT_TRUE(pair.until([&] { return pair.arrived() == pair.messages; })) << "seed " << seed;
    pair.turns(100);
    EXPECT_EQ(pair.arrived(), pair.messages) << "seed " << seed;
    EXPECT_EQ(pair.released, pair.sent) << "seed " << seed;
    expectWhole(pair, seed);
    contacts += pair.contacts;
  }
  EXPECT_GT(contacts, 500U);
}

TEST(VerbsChannels, AnIdleChannelThatBreaksOnOneSideOrOnBothIsThereForTheNextMessages) {
  for (const std::vector<int>& broken : std::vector<std::vector<int>>{{0}, {1}, {0, 1}}) {
    SimulatedVerbs network(13, SimulatedVerbs::Steps::ByTest);
    VerbsPair pair(network, kPatience);
    for (const int rank : broken) network.breakPairsOf(rank);
    pair.turns(500);
    EXPECT_GE(pair.contacts, 2U);
    const std::size_t contacts = pair.contacts;
    pair.turns(5'000);
    EXPECT_EQ(pair.contacts, contacts) << "the outage is over, though nothing was sent";
    for (const int rank : {0, 1}) pair.send(rank, {grantMessage(1)});
    ASSERT_TRUE(pair.until([&] { return pair.arrived() == 2; }));
  }
}

TEST(VerbsChannels, MessagesGoInTheOrderOfTheirClassAcrossABreak) {
  SimulatedVerbs network(14, SimulatedVerbs::Steps::ByTest);
  VerbsPair pair(network, kPatience);
  network.breakOften(6, 10);
  constexpr std::uint64_t kMessages = 500;
  for (std::uint64_t number = 0; number < kMessages; ++number) pair.send(0, {grantMessage(number)});
  ASSERT_TRUE(pair.until([&] { return pair.arrived() == kMessages; }));
  for (std::uint64_t number = 0; number < kMessages; ++number)
    EXPECT_EQ(pair.receivers[1].arrivals[number].fields[0], number);
  EXPECT_GE(pair.contacts, 4U);
}

TEST(VerbsChannels, MemoryThatWasAddedIsReadFromAndIntoAfterABreak) {
  SimulatedVerbs network(15, SimulatedVerbs::Steps::ByTest);
  VerbsPair pair(network, kPatience);
  Bytes added = pattern(kMiB, 3);
  pair.on(0, [&] { pair.channel(0).addStaging(added); });
  network.breakPairsOf(0);
  pair.send(0, {messageAt(1, added, 0, added.size(), 0)});
  ASSERT_TRUE(pair.until([&] { return pair.released[0] == 1; }));
  EXPECT_TRUE(std::ranges::equal(added, std::span(pair.receivers[1].staging).first(added.size())));
  EXPECT_GE(network.counts().readBytes, added.size());
  pair.on(0, [&] { pair.channel(0).close(); });
}

// Both ranks' channels end, each once and by its own clock, with what broke first.
void expectEndsByPatience(VerbsPair& pair) {
  ASSERT_TRUE(pair.until([&] { return !pair.receivers[0].ends.empty() && !pair.receivers[1].ends.empty(); }));
  pair.turns(5'000);
  for (const VerbsPair::Receiver& receiver : pair.receivers) {
    ASSERT_EQ(receiver.ends.size(), 1U);
    const std::string& told = receiver.ends[0].text();
    for (const char* words : {"RDMA to rank ", ") broke: status 12", "; for 60000 ms no connection could be made anew"})
      EXPECT_NE(told.find(words), std::string::npos) << told;
  }
}

TEST(VerbsChannels, APathThatStaysAwayEndsTheChannelOnBothSidesWhenTheirPatienceIsOver) {
  for (const int from : {0, 1}) {
    SimulatedVerbs network(16, SimulatedVerbs::Steps::ByTest);
    VerbsPair pair(network, kPatience);
    network.lose(0, 1, true);
    network.lose(1, 0, true);
    pair.send(from, {grantMessage(1)});
    pair.turns(50'000);
    EXPECT_TRUE(pair.receivers[0].ends.empty() && pair.receivers[1].ends.empty()) << "50 seconds";
    expectEndsByPatience(pair);
  }
}

TEST(VerbsChannels, APathThatComesBackWithinThePatienceCarriesWhatWaited) {
  SimulatedVerbs network(17, SimulatedVerbs::Steps::ByTest);
  VerbsPair pair(network, kPatience);
  network.lose(1, 0, true);
  for (const int rank : {0, 1}) pair.send(rank, {messageAt(1, pair.receivers[rank].staging, 0, kMiB, kMiB)});
  pair.turns(50'000);
  EXPECT_EQ(pair.arrived(), 0U);
  network.loseNothing();
  ASSERT_TRUE(pair.until([&] { return pair.arrived() == 2 && pair.released == pair.sent; }));
}

// Small packets pass, so each attempt comes about, and breaks again.
TEST(VerbsChannels, ConnectionsThatCarryNothingOfWhatWaitsDoNotProlongAnOutage) {
  for (const int reader : {0, 1}) {
    SimulatedVerbs network(18, SimulatedVerbs::Steps::ByTest);
    VerbsPair pair(network, kPatience);
    network.failReads();
    pair.send(1 - reader, {messageAt(1, pair.receivers[1 - reader].staging, 0, kMiB, 0)});
    ASSERT_TRUE(pair.until([&] { return !pair.receivers[reader].ends.empty(); }));
    EXPECT_NE(pair.receivers[reader].ends[0].text().find("could be made anew"), std::string::npos);
  }
}

TEST(VerbsChannels, ADeviceThatFailsDuringAnOutageEndsItsChannelsWithoutPatience) {
  for (const int rank : {0, 1}) {
    SimulatedVerbs network(19, SimulatedVerbs::Steps::ByTest);
    VerbsPair pair(network, kPatience);
    network.lose(0, 1, true);
    pair.send(0, {grantMessage(1)});
    pair.turns(1'000);
    network.report(rank, {VerbsAsyncEvent::Kind::DeviceFailed, 0, "local catastrophic error"});
    pair.turns(3'000);
    ASSERT_EQ(pair.receivers[rank].ends.size(), 1U);
    EXPECT_NE(pair.receivers[rank].ends[0].text().find("catastrophic"), std::string::npos);
  }
}

TEST(VerbsChannels, ARankThatLeavesIsNotConnectedAnewAndItsChannelEndsInGoodOrder) {
  for (const bool before : {false, true}) {
    SimulatedVerbs network(20, SimulatedVerbs::Steps::ByTest);
    VerbsPair pair(network, kPatience);
    network.lose(0, 1, true);
    if (before) pair.on(0, [&] { pair.channel(0).peerLeaves(); });
    pair.send(0, {grantMessage(1)});
    pair.turns(100);
    if (!before) pair.on(0, [&] { pair.channel(0).peerLeaves(); });
    pair.turns(10);
    ASSERT_EQ(pair.receivers[0].ends.size(), 1U);
    EXPECT_FALSE(pair.receivers[0].ends[0]) << pair.receivers[0].ends[0].text();
  }
}

TEST(VerbsChannels, AChannelIsClosedDuringAnOutageAsAtAnyTime) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    SimulatedVerbs network(seed, SimulatedVerbs::Steps::ByTest);
    VerbsPair pair(network, kPatience);
    Script script(seed);
    network.breakOften(20, 40);
    sendSome(script, pair, 60);
    pair.turns(static_cast<int>(script.below(200)));
    const int closed = static_cast<int>(script.below(2));
    pair.on(closed, [&] { pair.channel(closed).close(); });
    pair.receivers[closed].aside.clear();
    const auto released = pair.released[closed];
    const std::size_t arrivals = pair.receivers[closed].arrivals.size();
    pair.turns(3'000);
    EXPECT_EQ(pair.released[closed], released);
    EXPECT_EQ(pair.receivers[closed].arrivals.size(), arrivals);
    EXPECT_TRUE(pair.receivers[closed].ends.empty());
    EXPECT_LE(pair.receivers[1 - closed].ends.size(), 1U) << "where no goodbye came, the control connection tells";
  }
}

struct AnyContact {
  std::uint32_t attempt = 0;
  std::uint64_t processed = 0;
  std::string why;
  VerbsAddress address;
  QueuePairName slots;
  QueuePairName reads;

  static void fields(auto& row, auto& contact) {
    row("verbs 3", contact.attempt, contact.processed, contact.why, contact.address, contact.slots, contact.reads);
  }
};

// Either rank may be the one that hears it.
TEST(VerbsChannels, AContactWhoseCountOfSlotsCannotBeIsRefused) {
  for (const int refuser : {0, 1}) {
    for (const bool tooMany : {false, true}) {
      SimulatedVerbs network(21, SimulatedVerbs::Steps::ByTest);
      VerbsPair pair(network, kPatience);
      // Enough for credits to come back.
      for (std::uint64_t number = 0; number < 500; ++number) pair.send(refuser, {grantMessage(number)});
      ASSERT_TRUE(pair.until([&] { return pair.arrived() == pair.messages; }));
      pair.turns(100);
      network.breakPairsOf(0);
      ASSERT_TRUE(pair.until([&] {
        for (std::string& text : pair.mail[refuser]) {
          AnyContact contact = fromText<AnyContact>(text).value();
          contact.processed = tooMany ? contact.processed + 1 : 0;
          text = toText(contact);
        }
        return !pair.receivers[refuser].ends.empty();
      }));
      const std::string told = pair.receivers[refuser].ends[0].text();
      EXPECT_NE(told.find(concat("rank ", 1 - refuser, " sent a count of slots by RDMA")), std::string::npos) << told;
    }
  }
}

TEST(VerbsChannels, AQueuePairThatBreaksEndsEachChannelOnceAndTouchesNothingAfterwards) {
  std::size_t noticed = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    SimulatedVerbs network(seed, SimulatedVerbs::Steps::ByTest);
    VerbsPair pair(network);
    Script script(seed);
    network.breakAfter(script.below(100), script.below(2) == 0 ? SimulatedVerbs::kRetriesExceeded : 2);
    sendSome(script, pair, 80);
    for (int more = 0; more < 100 && pair.receivers[0].ends.empty() && pair.receivers[1].ends.empty(); ++more)
      sendSome(script, pair, 1);
    ASSERT_TRUE(pair.until([&] { return pair.receivers[0].ends.size() + pair.receivers[1].ends.size() > 0; })) << seed;
    const int first = pair.receivers[0].ends.empty() ? 1 : 0;
    const Error& error = pair.receivers[first].ends[0];
    ASSERT_TRUE(error);
    EXPECT_NE(error.text().find("RDMA to rank " + std::to_string(1 - first)), std::string::npos) << error.text();
    // The other notices when it next sends, if it did not hear a goodbye. If it has no slot of its peer's left to send
    // to, only its control connection tells it.
    pair.send(1 - first, {grantMessage(1)});
    pair.turns(500);
    noticed += pair.receivers[1 - first].ends.size();
    const auto released = pair.released;
    for (VerbsPair::Receiver& receiver : pair.receivers) receiver.aside.clear();
    pair.turns(20);
    EXPECT_EQ(pair.released, released);
    EXPECT_EQ(pair.receivers[first].ends.size(), 1U);
    EXPECT_LE(pair.receivers[1 - first].ends.size(), 1U);
  }
  EXPECT_GT(noticed, 50U);
}

}  // namespace

}  // namespace fairring
