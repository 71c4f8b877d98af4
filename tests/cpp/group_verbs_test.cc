// Groups whose rails are channels over simulated verbs, with completions late and in any order.
#include <gtest/gtest.h>

#include "group_job.h"
#include "simulated_verbs.h"

namespace fairring::testing {
namespace {

// More than staging holds, so every slice has to give back what it took.
constexpr std::size_t kElements = 100'000;
constexpr int kCalls = 30;

Transports verbsOn(SimulatedVerbs& network) {
  const Transport verbs{
      .name = "verbs",
      .make = [open = network.opener()](
                  Loop& loop, const ChannelSettings& settings,
                  MessageReceiver& receiver) { return makeVerbsChannels(open, loop, settings, receiver); },
      .isRdma = true};
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

TEST(GroupOverVerbs, AQueuePairThatBreaksIsAnErrorOnEveryRankOfEveryCall) {
  for (unsigned seed = 0; seed < 3; ++seed) {
    SimulatedVerbs network(seed);
    Job job({"a", "b", "c"});
    job.transports = verbsOn(network);
    job.joinAll();
    for (auto& done : callAll(job, kElements).done) ASSERT_EQ(done.get(), "");
    network.breakAfter(20 * seed);
    std::vector<Called> calls;
    for (int call = 0; call < kCalls; ++call) calls.push_back(callAll(job, kElements));
    for (std::size_t rank = 0; rank < job.nodes.size(); ++rank) {
      const std::string last = calls.back().done[rank].get();
      EXPECT_NE(last.find("RDMA to rank"), std::string::npos) << last;
    }
    for (Called& called : calls) {
      for (auto& done : called.done) {
        if (done.valid()) done.wait();
      }
    }
  }
}

}  // namespace
}  // namespace fairring::testing
