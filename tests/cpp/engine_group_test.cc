// Whole groups over real sockets of this machine, every rank with its own loop and listener.
#include "engine/group.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <condition_variable>
#include <future>
#include <numeric>

#include "exchange/links.h"

namespace fairring {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{60'000};

struct Node {  // what a process has
  LoopThread loop;
  Acceptor acceptor{loop, "127.0.0.1", {}};
  std::shared_ptr<Entrance> entrance;
  std::unique_ptr<Group> group;

  ~Node() {
    group.reset();
    acceptor.remove(entrance);
  }
};

class Job {
 public:
  explicit Job(const std::vector<std::string>& machines) {
    const Secret secret = randomSecret();
    for (std::size_t r = 0; r < machines.size(); ++r) {
      auto node = std::make_unique<Node>();
      node->entrance = std::make_shared<Entrance>(makeGroupId(secret, "job"), secret, static_cast<int>(r));
      node->acceptor.add(node->entrance);
      facts.push_back({{machines[r], ""}, "host-of-" + machines[r], "127.0.0.1", node->acceptor.port(), "same"});
      nodes.push_back(std::move(node));
    }
  }
  void join(std::size_t rank) {
    GroupSettings settings{.name = "job",
                           .rank = static_cast<int>(rank),
                           .transport = {},
                           .makeTensorPipe = nullptr,
                           .totalMemoryBytes = 1 << 20,
                           .sliceBytes = 256 << 10};
    nodes[rank]->group = std::make_unique<Group>(nodes[rank]->loop, nodes[rank]->entrance, settings, facts);
  }
  void joinAll() {
    for (std::size_t r = 0; r < nodes.size(); ++r) join(r);
  }
  std::future<std::string> allReduce(std::size_t rank, std::vector<float>& tensor, milliseconds timeout = kLong) {
    auto done = std::make_shared<std::promise<std::string>>();
    nodes[rank]->group->submit({.data = tensor.data(),
                                .elements = tensor.size(),
                                .reduction = {.dtype = DType::Float32},
                                .timeout = timeout,
                                .title = "all_reduce of " + std::to_string(tensor.size()),
                                .done = [done](const Error& error) { done->set_value(error ? error.text() : ""); }});
    return done->get_future();
  }

  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<RankFacts> facts;
};

// Everyone contributes rank + 1.
void allReduceEverywhere(Job& job, std::size_t elements) {
  const std::size_t world = job.nodes.size();
  std::vector<std::vector<float>> tensors;
  for (std::size_t r = 0; r < world; ++r) tensors.emplace_back(elements, static_cast<float>(r + 1));
  std::vector<std::future<std::string>> done;
  for (std::size_t r = 0; r < world; ++r) done.push_back(job.allReduce(r, tensors[r]));
  for (auto& one : done) EXPECT_EQ(one.get(), "");
  const std::size_t sum = world * (world + 1) / 2;
  const std::vector<float> expected(elements, static_cast<float>(sum));
  for (const auto& tensor : tensors) EXPECT_EQ(tensor, expected);
}

TEST(Group, SumsAcrossMachinesAndWithinThem) {
  for (const auto& machines : {std::vector<std::string>{"a"},
                               {"a", "a"},
                               {"a", "b"},
                               {"a", "b", "a", "b"},
                               {"a", "a", "a", "b"},
                               {"a", "b", "c", "d"}}) {
    Job job(machines);
    job.joinAll();
    for (const std::size_t elements : {0U, 1U, 5U, 1000U, 300'000U}) allReduceEverywhere(job, elements);
  }
}

TEST(Group, NobodyWaitsForAnothersFirstCall) {
  Job job({"a", "b"});
  job.join(1);
  std::vector<float> late(10, 1.0F);
  std::vector<float> early(10, 2.0F);
  auto done = job.allReduce(1, early);  // returns, though rank 0 has not used the group yet
  job.join(0);
  EXPECT_EQ(job.allReduce(0, late).get(), "");
  EXPECT_EQ(done.get(), "");
  EXPECT_EQ(early, late);
}

TEST(Group, ACallThatIsNotMadeElsewhereTimesOutAndNamesTheRank) {
  Job job({"a", "a", "b"});
  job.joinAll();
  allReduceEverywhere(job, 100);
  std::vector<float> tensor(100);
  std::vector<float> other(100);
  auto first = job.allReduce(0, tensor, milliseconds(200));
  auto second = job.allReduce(1, other);
  const std::string text = first.get();
  EXPECT_NE(text.find("rank 2 (host-of-b)"), std::string::npos) << text;
  EXPECT_NE(text.find("all_reduce of 100"), std::string::npos) << text;
  EXPECT_EQ(second.get(), text) << "the first error travels to the neighbours";
}

TEST(Group, AnErrorStays) {
  Job job({"a", "b"});
  job.joinAll();
  allReduceEverywhere(job, 10);
  job.nodes[0]->group->abort(makeError(ErrorKind::Aborted, "enough"));
  std::vector<float> tensor(10);
  EXPECT_EQ(job.allReduce(0, tensor).get(), "enough");
  EXPECT_EQ(job.allReduce(0, tensor).get(), "enough");
  EXPECT_EQ(job.allReduce(1, tensor).get(), "enough");
}

TEST(Group, ARankThatLeavesInGoodOrderSpoilsNothingThatWasCompleted) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    Job job({"a", "a", "b"});
    job.joinAll();
    std::vector<std::vector<float>> tensors(3, std::vector<float>(50'000, 1.0F));
    std::vector<std::future<std::string>> done;
    for (std::size_t r = 0; r < 3; ++r) done.push_back(job.allReduce(r, tensors[r]));
    EXPECT_EQ(done[0].get(), "");
    job.nodes[0]->group.reset();
    EXPECT_EQ(done[1].get(), "");
    EXPECT_EQ(done[2].get(), "");
    EXPECT_EQ(tensors[2], std::vector<float>(50'000, 3.0F));
  }
}

TEST(Group, AFurtherCallAfterARankHasLeftIsAnErrorThatNamesIt) {
  Job job({"a", "b"});
  job.joinAll();
  allReduceEverywhere(job, 10);
  job.nodes[0]->group.reset();
  std::vector<float> tensor(10);
  const std::string text = job.allReduce(1, tensor).get();
  EXPECT_NE(text.find("rank 0 has left the group"), std::string::npos) << text;
}

// Rank 1 is the test's: it says goodbye, and then its connections end though rank 0 still needs it.
TEST(Group, ARankThatDiesAfterItsGoodbyeIsNotWaitedFor) {
  Job job({"a", "b"});
  job.join(0);
  std::vector<float> tensor(10);
  auto done = job.allReduce(0, tensor);
  Node& peer = *job.nodes[1];
  std::promise<void> linked;
  std::vector<Arrival> arrivals;
  std::unique_ptr<Links> links;
  const SocketAddress address = tcpAddress("127.0.0.1", job.facts[0].port);
  peer.loop.runAndWait([&] {
    const auto arrived = [&](Arrival arrival) {
      arrivals.push_back(std::move(arrival));
      if (arrivals.size() == 2) linked.set_value();
    };
    links = std::make_unique<Links>(peer.loop.loop(), peer.entrance, Links::Events{arrived, nullptr});
    links->want({{0, Purpose::Control, address}, {0, Purpose::Lane, address}}, kLong);
  });
  linked.get_future().wait();
  const std::string goodbye(
      "\x04\0\0\0\x01\0\0\0"
      "0",
      9);
  for (const Arrival& arrival : arrivals) {
    if (arrival.purpose == Purpose::Control) {
      ASSERT_EQ(::send(arrival.socket.get(), goodbye.data(), goodbye.size(), 0), 9);
    }
  }
  arrivals.clear();
  EXPECT_NE(done.get().find("rank 1 has left the group"), std::string::npos);
  peer.loop.runAndWait([&] { links.reset(); });
}

TEST(Group, ARankThatCannotOpenTellsTheOthersWhy) {
  Job job({"a", "b"});
  job.join(0);
  GroupSettings settings{.name = "job",
                         .rank = 1,
                         .transport = {Transport::Pipes::TensorPipe, "uv"},
                         .makeTensorPipe = [](auto&&...) -> std::unique_ptr<ContactPipes> {
                           throw Failure(makeError(ErrorKind::Configuration, "no such device"));
                         },
                         .totalMemoryBytes = 1 << 20,
                         .sliceBytes = 256 << 10};
  job.nodes[1]->group = std::make_unique<Group>(job.nodes[1]->loop, job.nodes[1]->entrance, settings, job.facts);
  std::vector<float> tensor(10);
  const std::string text = job.allReduce(0, tensor).get();
  EXPECT_NE(text.find("rank 1 (host-of-b): no such device"), std::string::npos) << text;
}

TEST(Group, UnfinishedCallsEndWithAnErrorWhenTheGroupIsDestroyed) {
  Job job({"a", "b"});
  job.joinAll();
  std::vector<float> tensor(10);
  auto done = job.allReduce(1, tensor);
  job.nodes[1]->group.reset();
  EXPECT_NE(done.get().find("destroyed group job while all_reduce of 10"), std::string::npos);
}

TEST(Group, SettingsThatDifferAreRefusedAndNameTheRank) {
  Job job({"a", "b"});
  job.facts[1].settings = "other";
  try {
    job.join(0);
    FAIL() << "accepted";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.error().kind(), ErrorKind::Configuration);
    EXPECT_NE(std::string(failure.what()).find("rank 1 (host-of-b) has other"), std::string::npos) << failure.what();
  }
}

TEST(Group, AnAddressThatOtherMachinesCannotReachIsRefused) {
  Job job({"a", "b"});
  job.facts[1].address = "10.1.2.3";
  EXPECT_THROW(job.join(0), Failure);
}

TEST(Group, StrangersChangeNothing) {
  Job job({"a", "b"});
  const std::string wrong[] = {"GET / HTTP/1.1\r\n\r\n", std::string(72, '\xff'), std::string(100'000, 'x'), "",
                               "FAIRRING"};
  std::vector<Descriptor> open;
  const auto bother = [&](const Node& node) {
    for (const std::string& bytes : wrong) {
      Descriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
      const SocketAddress address = tcpAddress("127.0.0.1", node.acceptor.port());
      ASSERT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length), 0);
      [[maybe_unused]] const auto sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      open.push_back(std::move(socket));
    }
  };
  for (const auto& node : job.nodes) bother(*node);
  job.joinAll();
  for (int i = 0; i < 10; ++i) {
    allReduceEverywhere(job, 1000);
    for (const auto& node : job.nodes) bother(*node);
  }
  allReduceEverywhere(job, 1000);
  EXPECT_GT(job.nodes[0]->acceptor.strangers(), 0U);
}

TEST(Group, TwoThatListenInOneRangeTakeDifferentPortsAndAFullRangeIsAnError) {
  LoopThread loop;
  const Acceptor first(loop, "127.0.0.1", {});
  const int port = first.port();
  EXPECT_THROW(Acceptor(loop, "127.0.0.1", {port, port}), Failure);
  EXPECT_THROW(Acceptor(loop, "203.0.113.7", {}), Failure);
}

}  // namespace
}  // namespace fairring
