// Groups whose rails are channels over simulated verbs, with completions late and in any order.
#include <gtest/gtest.h>

#include "group_job.h"
#include "simulated_verbs.h"

namespace fairring::testing {
namespace {

// More than staging holds, so every slice has to give back what it took.
constexpr std::size_t kElements = 100'000;
constexpr int kCalls = 30;

Transports verbsOn(SimulatedVerbs& network, std::optional<milliseconds> tcpAfter = std::nullopt) {
  const Transport verbs{
      .name = "verbs",
      .make = [open = network.opener()](
                  Loop& loop, const ChannelSettings& settings,
                  MessageReceiver& receiver) { return makeVerbsChannels(open, loop, settings, receiver); },
      .isRdma = true,
      .tcpAfter = tcpAfter};
  return {verbs, verbs};
}

struct Called {
  std::vector<std::vector<float>> tensors;
  std::vector<std::future<std::string>> done;
};

Called callAll(Job& job, std::size_t elements) {
  const std::size_t ranks = job.nodes.size();
  Called called{std::vector(ranks, std::vector<float>(elements)), {}};
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < elements; ++i) called.tensors[rank][i] = static_cast<float>((i + rank) % 100);
    called.done.push_back(job.allReduce(rank, called.tensors[rank]));
  }
  return called;
}

TEST(GroupOverVerbs, SumsAreExactAndStagingComesBackCallAfterCall) {
  SimulatedVerbs network(1);
  Job job({"a", "a", "b", "b"});
  job.transports = verbsOn(network);
  job.joinAll();
  for (int call = 0; call < kCalls; ++call) {
    const std::size_t elements = call % 3 == 0 ? 10 : kElements;
    Called called = callAll(job, elements);
    for (auto& done : called.done) ASSERT_EQ(done.get(), "");
    for (std::size_t i = 0; i < elements; ++i) {
      ASSERT_EQ(called.tensors[3][i], static_cast<float>(i % 100 + (i + 1) % 100 + (i + 2) % 100 + (i + 3) % 100));
    }
  }
  EXPECT_GT(network.counts().readBytes, network.counts().sentBytes);
  EXPECT_EQ(network.counts().registrations, 8U) << "staging and slots of four ranks, whatever the calls";
}

TEST(GroupOverVerbs, SumsAreExactAndStagingComesBackHoweverOftenQueuePairsBreak) {
  SimulatedVerbs network(2);
  Job job({"a", "a", "b", "b"});
  job.transports = verbsOn(network);
  job.joinAll();
  for (auto& done : callAll(job, kElements).done) ASSERT_EQ(done.get(), "");
  constexpr std::size_t kBreaks = 6;
  network.breakOften(kBreaks, 400);
  while (network.counts().breaks < kBreaks) {
    Called called = callAll(job, kElements);
    for (auto& done : called.done) ASSERT_EQ(done.get(), "");
    for (std::size_t i = 0; i < kElements; ++i) {
      ASSERT_EQ(called.tensors[3][i], static_cast<float>(i % 100 + (i + 1) % 100 + (i + 2) % 100 + (i + 3) % 100));
    }
  }
}

void loseAll(SimulatedVerbs& network) {
  network.lose(0, 1, true);
  network.lose(1, 0, true);
}

TEST(GroupOverVerbs, APathThatStaysAwayIsAnErrorOnEveryRankAfterTheHeartbeatTimeout) {
  SimulatedVerbs network(3);
  Job job({"a", "b"});
  job.transports = verbsOn(network);
  job.heartbeatTimeout = milliseconds(3'000);
  job.joinAll();
  for (auto& done : callAll(job, kElements).done) ASSERT_EQ(done.get(), "");
  loseAll(network);
  const auto start = Loop::Clock::now();
  for (auto& done : callAll(job, kElements).done) {
    const std::string told = done.get();
    EXPECT_NE(told.find("for 3000 ms no connection could be made anew"), std::string::npos) << told;
  }
  EXPECT_GE(Loop::Clock::now() - start, milliseconds(2'000));
}

TEST(GroupOverVerbs, AnOutageHidesNoErrorOfAPeerAndNoEndOfTheGroup) {
  const auto start = Loop::Clock::now();
  for (const bool fails : {true, false}) {
    SimulatedVerbs network(4);
    Job job({"a", "b"});
    job.transports = verbsOn(network);
    // A rank whose last word was lost with the path leaves when the outage has lasted for so long.
    if (!fails) job.heartbeatTimeout = milliseconds(10'000);
    job.joinAll();
    for (auto& done : callAll(job, kElements).done) ASSERT_EQ(done.get(), "");
    loseAll(network);
    network.breakPairsOf(0);
    if (!fails) continue;
    Called called = callAll(job, kElements);
    job.nodes[1]->group->abort(makeError(ErrorKind::Aborted, "the test gave up"));
    for (auto& done : called.done) EXPECT_NE(done.get().find("the test gave up"), std::string::npos);
  }
  EXPECT_LT(Loop::Clock::now() - start, kLong / 2);
}

TEST(GroupOverVerbs, MemoryIsLockedWhenARankHasMadeItsChannelsUnlessTheTransportLocksItLater) {
  for (const bool later : {false, true}) {
    SimulatedVerbs network(1);
    Job job({"a", "b"});
    job.transports = verbsOn(network);
    job.transports.rail.locksLater = later;
    std::promise<std::uint64_t> locked;  // when so many ranks' memory was registered, at least
    job.memoryLocked = [&] { locked.set_value(network.counts().registrations / 2); };
    job.join(0);
    job.memoryLocked = nullptr;
    job.join(1);
    std::vector<float> one(10, 1.0F);
    std::vector<float> other(10, 1.0F);
    auto first = job.allReduce(0, one);
    auto ranks = locked.get_future();
    if (!later) {
      ASSERT_EQ(ranks.wait_for(kLong), std::future_status::ready) << "rank 1 has made no call";
      EXPECT_EQ(ranks.get(), 1U);
    }
    EXPECT_EQ(job.allReduce(1, other).get(), "");
    EXPECT_EQ(first.get(), "");
    if (later) EXPECT_EQ(ranks.get(), 2U);
  }
}

TEST(GroupOverVerbs, ReadsThatDevicesRefuseAreAnErrorOnEveryRankOfEveryCall) {
  for (unsigned seed = 0; seed < 3; ++seed) {
    SimulatedVerbs network(seed);
    Job job({"a", "b", "c"});
    job.transports = verbsOn(network);
    job.joinAll();
    for (auto& done : callAll(job, kElements).done) ASSERT_EQ(done.get(), "");
    network.failReads(SimulatedVerbs::kNoRight);
    std::vector<Called> calls;
    for (int call = 0; call < kCalls; ++call) calls.push_back(callAll(job, kElements));
    for (std::size_t rank = 0; rank < job.nodes.size(); ++rank) {
      const std::string last = calls.back().done[rank].get();
      EXPECT_NE(last.find("RDMA to rank"), std::string::npos) << last;
      EXPECT_NE(last.find("; FAIRRING_TRANSPORT=tcp does without RDMA"), std::string::npos) << last;
    }
    for (Called& called : calls) {
      for (auto& done : called.done) {
        if (done.valid()) done.wait();
      }
    }
  }
}

// Sums of ranks on machines of their own, where "auto" has chosen verbs, and what the ranks say of it.
struct ByAuto {
  static constexpr milliseconds kPatience{300};

  explicit ByAuto(SimulatedVerbs& network, int ranks = 3, milliseconds patience = kPatience) : job(machinesOf(ranks)) {
    job.transports = verbsOn(network, patience);
    job.warn = [this](const std::string& text) {
      const std::lock_guard lock(mutex);
      warnings.push_back(text);
    };
    job.joinAll();
  }
  void sumExactly() {
    for (int call = 0; call < 3; ++call) {
      Called called = callAll(job, kElements);
      for (auto& done : called.done) EXPECT_EQ(done.get(), "");
      for (std::size_t i = 0; i < kElements; ++i) {
        float sum = 0;
        for (std::size_t rank = 0; rank < job.nodes.size(); ++rank) sum += static_cast<float>((i + rank) % 100);
        ASSERT_EQ(called.tensors.back()[i], sum);
      }
    }
  }
  static std::vector<std::string> machinesOf(int ranks) {
    std::vector<std::string> machines;
    for (int rank = 0; rank < ranks; ++rank) machines.emplace_back(1, static_cast<char>('a' + rank));
    return machines;
  }

  std::mutex mutex;
  std::vector<std::string> warnings;
  Job job;
};

TEST(GroupOverVerbs, ARankWhosePortCannotBeOpenedTakesTcpWithItsPeersAndTheOthersTakeVerbs) {
  for (const int closed : {0, 1, 2}) {
    SimulatedVerbs network(1);
    network.close(closed);
    ByAuto group(network);
    group.sumExactly();
    EXPECT_GT(network.counts().readBytes, 0U) << closed;
    EXPECT_EQ(group.warnings.size(), 3U) << "each has such a peer, and speaks of the first";
    for (const std::string& text : group.warnings) {
      EXPECT_NE(text.find("TCP between rank "), std::string::npos) << text;
      EXPECT_NE(text.find("): the simulated port can't be opened"), std::string::npos) << text;
    }
  }
}

TEST(GroupOverVerbs, WhereNoPortCanBeOpenedAllTakeTcp) {
  SimulatedVerbs network(1);
  for (const int rank : {0, 1, 2}) network.close(rank);
  ByAuto group(network);
  group.sumExactly();
  EXPECT_EQ(network.counts().sentBytes, 0U);
}

TEST(GroupOverVerbs, RanksWhosePacketsGetLostTakeTcpWhicheverWayAndHoweverTheDeviceFindsOut) {
  for (const bool givesUp : {true, false}) {
    for (const auto& [from, to] : {std::pair(0, 2), std::pair(2, 0)}) {
      SimulatedVerbs network(1);
      network.lose(from, to, givesUp);
      ByAuto group(network);
      group.sumExactly();
      EXPECT_EQ(group.warnings.size(), 2U);
      for (const std::string& text : group.warnings) {
        EXPECT_EQ(text.find("FAIRRING_TRANSPORT"), std::string::npos) << text << ": there is nothing to be done";
      }
      EXPECT_GT(network.counts().readBytes, 0U) << "between the others";
    }
  }
}

TEST(GroupOverVerbs, RanksBetweenWhichOnlySmallFramesPassTakeTcp) {
  SimulatedVerbs network(1);
  network.loseLargerThan(4096);
  ByAuto group(network);
  group.sumExactly();
  EXPECT_EQ(group.warnings.size(), 3U);
  EXPECT_EQ(network.counts().sentBytes, 0U) << "the first that is sent fills a slot";
}

TEST(GroupOverVerbs, ACallOfLittleTimeSpendsAQuarterOfItOnPatience) {
  SimulatedVerbs network(1);
  network.lose(0, 1, false);
  ByAuto group(network, 2, kLong);
  std::vector<std::vector<float>> tensors(2, std::vector<float>(10, 1.0F));
  std::vector<std::future<std::string>> done;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    done.push_back(group.job.allReduce(rank, tensors[rank], milliseconds(4'000)));
  }
  for (auto& one : done) EXPECT_EQ(one.get(), "");
  EXPECT_NE(group.warnings.front().find("by RDMA for 1000 ms"), std::string::npos) << group.warnings.front();
}

TEST(GroupOverVerbs, TwoFabricsThatDoNotReachEachOtherTakeTcpBetweenThem) {
  SimulatedVerbs network(1);
  for (const auto& [one, other] : {std::pair(0, 2), std::pair(0, 3), std::pair(1, 2), std::pair(1, 3)}) {
    network.lose(one, other, false);
    network.lose(other, one, true);
  }
  ByAuto group(network, 4);
  group.sumExactly();
  EXPECT_EQ(group.warnings.size(), 4U);
  EXPECT_GT(network.counts().readBytes, 0U);
}

// It stands still before it has sent anything, so its peer answers only after that.
TEST(GroupOverVerbs, ARankThatStandsStillForLongerThanItsPatienceTakesVerbsAllTheSame) {
  SimulatedVerbs network(1);
  ByAuto group(network, 2);
  network.whenConnecting(0, [&] {
    group.job.nodes[0]->loop.loop().post([] {
      std::promise<void> never;
      never.get_future().wait_for(2 * ByAuto::kPatience);
    });
  });
  group.sumExactly();
  EXPECT_TRUE(group.warnings.empty()) << group.warnings.front();
  EXPECT_GT(network.counts().readBytes, 0U);
}

TEST(GroupOverVerbs, APortThatCannotBeOpenedIsAnErrorOnEveryRankWhereVerbsWereAskedFor) {
  SimulatedVerbs network(1);
  network.close(1);
  Job job({"a", "b", "c"});
  job.transports = verbsOn(network);
  job.joinAll();
  for (auto& done : callAll(job, kElements).done) {
    const std::string told = done.get();
    EXPECT_NE(told.find("the simulated port can't be opened"), std::string::npos) << told;
  }
}

}  // namespace
}  // namespace fairring::testing
