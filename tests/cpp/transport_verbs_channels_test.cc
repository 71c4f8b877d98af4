// Channels over verbs: the conformance test on simulated ports and on this machine's, and random scripts of messages,
// with and without a queue pair that breaks.
#include "transport/verbs_channel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>
#include <vector>

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

  explicit VerbsPair(SimulatedVerbs& network) : network_(network) {
    for (int rank = 0; rank < 2; ++rank) {
      on(rank, [&] {
        ChannelSettings settings;
        settings.rank = rank;
        settings.peers = {1 - rank};
        settings.staging = receivers[rank].staging;
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
      for (Loop& loop : loops_) loop.runOnce(std::chrono::milliseconds(0));
    }
    return true;
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

  Channel& channel(int rank) { return *channels_[rank]; }

 private:
  SimulatedVerbs& network_;
  std::array<Loop, 2> loops_;
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

TEST(VerbsChannels, EachOfTheThreeGreetingsFillsASlot) {
  SimulatedVerbs network(12, SimulatedVerbs::Steps::ByTest);
  const VerbsPair pair(network);
  EXPECT_EQ(network.counts().sentBytes, 3 * kSlotBytes);
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
