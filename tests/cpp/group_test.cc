// Whole groups over real sockets of this machine, every rank with its own loop and listener.
#include "group/group.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <string>
#include <thread>

#include "base/fields.h"
#include "deaf_listener.h"
#include "group/leave_protocol.h"
#include "group_job.h"
#include "transport/connector.h"
#include "transport/control.h"

namespace fairring {
namespace {

using std::chrono::milliseconds;
using testing::Job;
using testing::kLong;
using testing::Node;

// An error without the words about the call that was under way: they come last.
std::string causeIn(const std::string& text) { return text.substr(0, text.rfind("; call ")); }

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

TEST(Group, CountsWhatItsRanksMoveAtEachLevel) {
  Job job({"a", "b", "a", "b"});
  job.joinAll();
  constexpr std::size_t kElements = 300'000;
  allReduceEverywhere(job, kElements);
  std::map<int, std::uint64_t> bytes;
  for (const auto& node : job.nodes) {
    for (const auto& [level, moved] : node->group->traffic()) bytes[level] += moved.bytes;
  }
  // A rank reads half of the tensor of its machine's other rank, and half of the result; a machine sends it once.
  const std::uint64_t size = kElements * sizeof(float);
  EXPECT_EQ(bytes, (std::map<int, std::uint64_t>{{0, 4 * size}, {1, 2 * size}}));
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

TEST(Group, ARankThatComesLaterThanHeartbeatsWaitIsNotCalledSilent) {
  Job job({"a", "b"});
  job.heartbeatTimeout = milliseconds(100);
  job.join(1);
  std::vector<float> early(10, 2.0F);
  auto done = job.allReduce(1, early);
  EXPECT_EQ(done.wait_for(milliseconds(600)), std::future_status::timeout);
  job.join(0);
  std::vector<float> late(10, 1.0F);
  EXPECT_EQ(job.allReduce(0, late).get(), "");
  EXPECT_EQ(done.get(), "");
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
  EXPECT_NE(text.find("; call 2, all_reduce of 100, was under way: its tensors "), std::string::npos) << text;
  EXPECT_EQ(causeIn(second.get()), causeIn(text)) << "the first error travels to the neighbours";
}

TEST(Group, ACallWhoseInputsComeLateIsMadeAtOnceAndBeginsOnceTheyAreThere) {
  Job job({"a", "a", "b"});
  job.joinAll();
  allReduceEverywhere(job, 100);
  std::vector<std::vector<float>> tensors(3, std::vector<float>(50'000, 1.0F));
  std::ranges::fill(tensors[1], 0.0F);
  const auto inputs = std::make_shared<Arrival>(1);
  std::vector<std::future<std::string>> done;
  for (std::size_t r = 0; r < 3; ++r) done.push_back(job.allReduce(r, tensors[r], kLong, r == 1 ? inputs : nullptr));
  EXPECT_EQ(job.nodes[1]->group->callsMade(), 2U);
  for (const auto& one : done) EXPECT_EQ(one.wait_for(milliseconds(50)), std::future_status::timeout);
  std::ranges::fill(tensors[1], 2.0F);
  inputs->come();
  for (auto& one : done) EXPECT_EQ(one.get(), "");
  for (const auto& tensor : tensors) EXPECT_EQ(tensor, std::vector<float>(50'000, 4.0F));
}

TEST(Group, ADeviceThatDoesNotComeToACallIsNamedOnAllRanks) {
  Job job({"a", "b"});
  job.joinAll();
  allReduceEverywhere(job, 100);
  std::vector<std::vector<float>> tensors(2, std::vector<float>(9, 1.0F));
  const auto inputs = std::make_shared<Arrival>(1);
  auto late = job.allReduce(0, tensors[0], kLong, inputs);
  const std::string text = job.allReduce(1, tensors[1], milliseconds(300)).get();
  EXPECT_NE(text.find("rank 0 (host-of-a) has made call 2, all_reduce of 9, and its device has not come to it"),
            std::string::npos)
      << text;
  EXPECT_NE(late.get().find("its device has not come to it"), std::string::npos);
  inputs->come();
}

// Neither where the device fails after the call, nor where that is known when the call is made.
TEST(Group, InputsThatNeverComeEndTheCallOnAllRanksWithTheDevicesError) {
  for (const bool isKnown : {false, true}) {
    Job job({"a", "b"});
    job.joinAll();
    allReduceEverywhere(job, 100);
    std::vector<std::vector<float>> tensors(2, std::vector<float>(9, 1.0F));
    const auto inputs = std::make_shared<Arrival>(1);
    const auto fails = [&] { inputs->come(makeError(ErrorKind::System, "an illegal memory access")); };
    auto there = job.allReduce(1, tensors[1]);
    if (isKnown) fails();
    auto here = job.allReduce(0, tensors[0], kLong, inputs);
    if (!isKnown) fails();
    for (auto* one : {&here, &there})
      EXPECT_NE(one->get().find("rank 0 (host-of-a): an illegal memory access"), std::string::npos);
  }
}

std::ptrdiff_t openSockets() {
  return std::ranges::count_if(std::filesystem::directory_iterator("/proc/self/fd"), [](const auto& entry) {
    std::error_code gone;  // the descriptor of this very look
    return std::filesystem::read_symlink(entry.path(), gone).string().starts_with("socket:");
  });
}

// 6 groups of 11 machines: a rank meets 10 others of its group and one of each other group. Both ends are in this
// process.
TEST(Group, Of66MachinesConnectsARankTo15OthersByOneLaneAndOneControlConnection) {
  rlimit files{};  // some systems allow 1024 where nobody asks for more
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_max < 4096) GTEST_SKIP() << "at most " << files.rlim_max << " files";
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  std::vector<std::string> machines;
  for (int machine = 0; machine < 66; ++machine) machines.push_back(std::to_string(machine));
  Job job(machines);
  const std::ptrdiff_t before = openSockets();
  job.joinAll();
  allReduceEverywhere(job, 1000);
  // On a slow machine ranks have probed listeners, and the last of these connections may be about to end.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (openSockets() - before != 66 * 15 * 2 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_EQ(openSockets() - before, 66 * 15 * 2);
}

TEST(Group, ABusyLoopIsNoDeadRank) {
  Job job({"a", "b"});
  job.heartbeatTimeout = milliseconds(100);
  job.joinAll();
  allReduceEverywhere(job, 100);
  std::promise<void> busy;
  std::promise<void> goOn;
  job.nodes[1]->loop.loop().post([&] {
    busy.set_value();
    goOn.get_future().wait();
  });
  busy.get_future().wait();  // its thread has it, and not this one by a call below
  std::vector<std::vector<float>> tensors(2, std::vector<float>(100, 1.0F));
  auto first = job.allReduce(0, tensors[0]);
  auto second = job.allReduce(1, tensors[1]);
  EXPECT_EQ(first.wait_for(milliseconds(500)), std::future_status::timeout);
  goOn.set_value();
  EXPECT_EQ(first.get(), "");
  EXPECT_EQ(second.get(), "");
}

TEST(Group, AnErrorStaysAndIsToldOnce) {
  Job job({"a", "b"});
  std::atomic<int> told = 0;
  job.failed = [&told](const Error&) { ++told; };
  job.joinAll();
  allReduceEverywhere(job, 10);
  job.nodes[0]->group->abort(makeError(ErrorKind::Aborted, "enough"));
  std::vector<float> tensor(10);
  EXPECT_EQ(job.allReduce(0, tensor).get(), "enough");
  EXPECT_EQ(job.allReduce(0, tensor).get(), "enough");
  EXPECT_EQ(causeIn(job.allReduce(1, tensor).get()), "enough");
  for (const auto& node : job.nodes) node->group.reset();  // after that nothing is told any more
  EXPECT_EQ(told, 2) << "once by each rank";
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
  EXPECT_NE(text.find("rank 0 (host-of-a) has left the group"), std::string::npos) << text;
}

// How a call of rank 0 ends. The test plays rank 1: it sends this text as its leave, if there is one, and then its
// connections end though rank 0 still needs it.
std::string endOfCallAfter(Job& job, const std::optional<std::string>& text) {
  job.join(0);
  std::vector<float> tensor(10);
  auto done = job.allReduce(0, tensor);
  Node& peer = *job.nodes[1];
  std::promise<void> linked;
  std::vector<AuthenticatedConnection> connections;
  std::unique_ptr<Connector> connector;
  const SocketAddress address = tcpAddress("127.0.0.1", job.facts[0].port);
  peer.loop.runAndWait([&] {
    const auto arrived = [&](AuthenticatedConnection connection) {
      connections.push_back(std::move(connection));
      if (connections.size() == 2) linked.set_value();
    };
    connector = std::make_unique<Connector>(peer.loop.loop(), peer.endpoint, Connector::Events{arrived, nullptr});
    connector->want({{0, Purpose::Control, address}, {0, Purpose::Lane, address}}, kLong);
  });
  linked.get_future().wait();
  std::string leave("\x04\0\0\0\0\0\0\0", 8);
  if (text) {
    leave[4] = static_cast<char>(text->size());
    leave += *text;
  }
  for (const AuthenticatedConnection& connection : connections) {
    if (text && connection.purpose == Purpose::Control) {
      EXPECT_EQ(::send(connection.stream.socket().get(), leave.data(), leave.size(), 0), std::ssize(leave));
    }
  }
  connections.clear();
  std::string end = done.get();
  peer.loop.runAndWait([&] { connector.reset(); });
  return end;
}

std::string endOfCallAfterLeave(const std::string& text) {
  Job job({"a", "b"});
  return endOfCallAfter(job, text);
}

// As the store's connection would say it, from another thread.
LookForFailure theStoreSays(const Error& error) {
  return [error](const std::function<void(const Error&)>& found) { std::jthread([&] { found(error); }); };
}

TEST(Group, ARankThatNoPacketReachesIsNamedByTheOneThatWaitsForIt) {
  const testing::DeafListener cutOff;
  Job job({"a", "b"});
  job.connectTimeout = milliseconds(300);
  job.facts[1].port = cutOff.port();
  job.join(0);
  std::vector<float> tensor(10);
  const std::string text = job.allReduce(0, tensor).get();
  EXPECT_NE(text.find("rank 0 (host-of-a) can't reach rank 1 (host-of-b)"), std::string::npos) << text;
  EXPECT_NE(text.find("no answer to any probe of its listener within 300 ms"), std::string::npos) << text;
}

// Another rank has died, the peer has heard of it and left, and had no connection yet by which it could tell.
TEST(Group, WhoIsGoneBeforeItSaidAWordIsNotBlamedWhereTheStoreKnowsTheReason) {
  const Error reason = makeError(ErrorKind::PeerLeft, "rank 7 (host-of-c) died");
  Job job({"a", "b"});
  job.lookForFailure = theStoreSays(reason);
  EXPECT_EQ(causeIn(endOfCallAfter(job, std::nullopt)), reason.text());

  Job other({"a", "b"});
  other.lookForFailure = theStoreSays(reason);
  const Descriptor nobody(::socket(AF_INET, SOCK_STREAM, 0));  // bound, so that nobody else listens there
  const SocketAddress any = tcpAddress("127.0.0.1", 0);
  EXPECT_EQ(::bind(nobody.get(), reinterpret_cast<const sockaddr*>(&any.storage), any.length), 0);
  other.facts[0].port = portOf(nobody);
  other.join(1);
  std::vector<float> tensor(10);
  EXPECT_EQ(causeIn(other.allReduce(1, tensor).get()), reason.text());
}

TEST(Group, WhoIsGoneBeforeItSaidAWordIsBlamedWhereNobodyKnowsBetter) {
  Job job({"a", "b"});
  job.lookForFailure = theStoreSays({});
  const std::string text = endOfCallAfter(job, std::nullopt);
  EXPECT_NE(text.find("rank 1 (host-of-b) died"), std::string::npos) << text;

  Job other({"a", "b"});
  other.lookForFailure = [](const auto& /*found*/) {};  // it never answers
  const std::string late = endOfCallAfter(other, std::nullopt);
  EXPECT_NE(late.find("rank 1 (host-of-b) died"), std::string::npos) << late;
}

TEST(Group, ARankThatDiesAfterItsLeaveIsNotWaitedFor) {
  const std::string end = endOfCallAfterLeave(toText(Completed()));
  EXPECT_NE(end.find("rank 1 (host-of-b) has left the group"), std::string::npos) << end;
}

// Reads what comes over a control connection until that is a leave. A frame is its type, three zeros, the length of its
// text, and the text. False: it ended before.
bool hearsLeave(const AuthenticatedConnection& connection) {
  constexpr std::size_t kHead = 8;
  std::string came;
  for (;;) {
    while (came.size() >= kHead && came.size() >= kHead + static_cast<std::uint8_t>(came[4])) {
      if (came[0] == static_cast<char>(ControlType::Leave)) return true;
      came.erase(0, kHead + static_cast<std::uint8_t>(came[4]));
    }
    pollfd readable{connection.stream.socket().get(), POLLIN, 0};
    ::poll(&readable, 1, -1);
    char bytes[256];
    const std::ptrdiff_t count = ::recv(readable.fd, bytes, sizeof bytes, 0);
    if (count <= 0) return false;
    came.append(bytes, static_cast<std::size_t>(count));
  }
}

// The test plays rank 0, which closes a connection without having said a word, as a process does whose listener is too
// crowded to wait for our part of the challenge. So it has not heard the leave either.
TEST(Group, ALeaveIsSaidOnceMoreToOneThatWasTooCrowdedToHearIt) {
  Job job({"a", "b"});
  Node& peer = *job.nodes[0];
  std::vector<AuthenticatedConnection> lanes;
  std::array<std::promise<AuthenticatedConnection>, 2> controls;
  std::size_t count = 0;
  std::promise<bool> connectedAgain;
  std::once_flag isDecided;
  peer.loop.runAndWait([&] {
    peer.endpoint->open([&](AuthenticatedConnection connection) {
      if (connection.purpose != Purpose::Control) return lanes.push_back(std::move(connection));
      if (count == controls.size()) return;
      controls[count++].set_value(std::move(connection));
      if (count == 2) std::call_once(isDecided, [&] { connectedAgain.set_value(true); });
    });
  });
  job.join(1);
  const std::vector<float> tensor(10);
  std::promise<std::string> done;
  job.nodes[1]->group->submit(
      {.pattern = Pattern::Broadcast,
       .root = 1,
       .blocks = {{{.from = tensor.data(), .elements = tensor.size(), .reduction = {.dtype = DType::Float32}}}},
       .timeout = kLong,
       .signature = {"broadcast"},
       .done = [&done](const Error& error) { done.set_value(error ? error.text() : ""); }});
  EXPECT_EQ(done.get_future().get(), "");
  const auto left = std::async(std::launch::async, [&] {
    job.nodes[1]->group.reset();
    std::call_once(isDecided, [&] { connectedAgain.set_value(false); });
  });
  {
    const AuthenticatedConnection first = controls[0].get_future().get();
    EXPECT_TRUE(hearsLeave(first));
  }
  ASSERT_TRUE(connectedAgain.get_future().get());
  EXPECT_TRUE(hearsLeave(controls[1].get_future().get()));
  left.wait();
  peer.loop.runAndWait([&] {
    peer.endpoint->close();
    lanes.clear();
  });
}

TEST(Group, AMessageThatCannotBeReadEndsTheGroupWithTheNameOfItsSender) {
  const std::string end = endOfCallAfterLeave("0");
  EXPECT_NE(end.find("can't read what rank 1 (host-of-b) has sent"), std::string::npos) << end;
}

TEST(Group, ARankThatCannotOpenTellsTheOthersWhy) {
  Job job({"a", "b"});
  job.join(0);
  GroupSettings settings{.name = "job",
                         .rank = 1,
                         .tuning = {.totalMemoryBytes = 1 << 20, .sliceBytes = 256 << 10},
                         .transports = {},
                         .failed = nullptr};
  settings.transports.rail.make = [](auto&&...) -> ChannelsByPeer {
    throw Failure(makeError(ErrorKind::Configuration, "no such device"));
  };
  job.nodes[1]->group = std::make_unique<Group>(job.nodes[1]->threads(), job.nodes[1]->endpoint, settings, job.facts);
  std::vector<float> tensor(10);
  auto done = job.allReduce(0, tensor);
  std::vector<float> other(10);
  for (const std::string& text : {job.allReduce(1, other).get(), done.get()})
    EXPECT_NE(text.find("rank 1 (host-of-b): no such device"), std::string::npos) << text;
}

// The refused rank has ended before this one makes its first call.
TEST(Group, ARankThatTlsRefusedBeforeTheFirstCallIsToldAsThat) {
  Job job({"a", "b"});
  constexpr int kNobodysPort = 1;
  job.facts[1].port = kNobodysPort;
  Node& node = *job.nodes[0];
  const Error refused = makeError(ErrorKind::Configuration, "TLS: unknown authority");
  node.loop.runAndWait([&] { node.endpoint->put({1, Purpose::Control, 0, Stream(), refused}); });
  job.join(0);
  std::vector<float> tensor(10);
  const std::string text = job.allReduce(0, tensor).get();
  EXPECT_NE(text.find("rank 0 (host-of-a) can't speak to rank 1 (host-of-b)"), std::string::npos) << text;
  EXPECT_NE(text.find("TLS: unknown authority"), std::string::npos) << text;
}

// Three machines of two ranks. One of them has the wrong port of a neighbour, where nothing listens, and gives the
// neighbour up: at once if it connects to that one, by its probes if it waits for it to connect.
class WrongVerdict {
 public:
  WrongVerdict(std::size_t by, std::size_t on) : by_(by), on_(on) {
    const SocketAddress any = tcpAddress("127.0.0.1", 0);
    EXPECT_EQ(::bind(nobody_.get(), reinterpret_cast<const sockaddr*>(&any.storage), any.length), 0);
  }

  static bool areNeighbours(std::size_t a, std::size_t b) { return a != b && (a / 2 == b / 2 || a % 2 == b % 2); }

  // Ranks join and make their call in that order, but a rank that probes must declare dead joins once they have.
  void expectOneErrorOnAllRanks(std::vector<std::size_t> order) {
    const bool probes = by_ < on_;
    const auto [first, second] = std::minmax({std::ranges::find(order, by_), std::ranges::find(order, on_)});
    if (probes && *first == on_) std::iter_swap(first, second);
    for (const std::size_t rank : order) {
      if (probes && rank == on_) done_[by_].wait();
      const int port = std::exchange(job_.facts[on_].port, rank == by_ ? portOf(nobody_) : job_.facts[on_].port);
      job_.join(rank);
      job_.facts[on_].port = port;
      done_[rank] = job_.allReduce(rank, tensors_[rank]);
    }
    const std::string text = done_[by_].get();
    EXPECT_NE(text.find(concat("rank ", on_, " (host-of-", "abc"[on_ / 2], ")")), std::string::npos) << text;
    for (const std::size_t rank : order) {
      if (rank == by_) continue;
      EXPECT_EQ(causeIn(done_[rank].get()), causeIn(text)) << "rank " << rank;
    }
  }

 private:
  const std::size_t by_, on_;
  const Descriptor nobody_{::socket(AF_INET, SOCK_STREAM, 0)};  // bound, so that nobody else listens there
  std::vector<std::vector<float>> tensors_{6, std::vector<float>(100)};
  Job job_{{"a", "a", "b", "b", "c", "c"}};
  std::vector<std::future<std::string>> done_{6};
};

TEST(Group, AWrongVerdictOfDeathEndsTheCallOnAllRanksWithOneError) {
  std::vector<std::future<void>> tried;
  for (std::size_t by = 0; by < 6; ++by) {
    for (std::size_t on = 0; on < 6; ++on) {
      if (!WrongVerdict::areNeighbours(by, on)) continue;
      tried.push_back(std::async(std::launch::async, [by, on] {
        std::vector<std::size_t> order(6);
        std::iota(order.begin(), order.end(), 0U);
        const int step = by < on ? 3 : 1;  // to probe takes seconds
        for (int turn = 0; turn < 6; turn += step) {
          SCOPED_TRACE(concat("by ", by, " on ", on, ", from ", order.front(), " on"));
          WrongVerdict(by, on).expectOneErrorOnAllRanks(order);
          std::ranges::rotate(order, order.begin() + step);
        }
      }));
    }
  }
}

TEST(Group, UnfinishedCallsEndWithAnErrorWhenTheGroupIsDestroyed) {
  Job job({"a", "b"});
  job.joinAll();
  allReduceEverywhere(job, 10);  // from then on rank 0 hears of the end at once
  std::vector<float> tensor(10);
  auto done = job.allReduce(1, tensor);
  job.nodes[1]->group.reset();
  EXPECT_NE(done.get().find("destroyed group job while all_reduce of 10"), std::string::npos);
}

// As one that finds no memory does.
TEST(Group, AnExceptionOnTheLoopIsAnErrorOfAllRanksThatNamesTheOne) {
  Job job({"a", "b", "c"});
  job.joinAll();
  allReduceEverywhere(job, 10);
  std::vector<std::vector<float>> tensors(3, std::vector<float>(10));
  auto first = job.allReduce(0, tensors[0]);
  auto second = job.allReduce(1, tensors[1]);
  job.nodes[2]->loop.loop().post([] { throw std::bad_alloc(); });
  auto third = job.allReduce(2, tensors[2]);
  for (auto* done : {&first, &second, &third}) {
    const std::string text = done->get();
    EXPECT_NE(text.find("rank 2 (host-of-c): the loop was stopped by an exception: std::bad_alloc"), std::string::npos)
        << text;
  }
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
  for (RankFacts& facts : job.facts) facts.network = facts.place.machine;
  job.facts[1].addresses = {"10.1.2.3"};
  EXPECT_THROW(job.join(0), Failure);
}

TEST(Group, StrangersChangeNothing) {
  Job job({"a", "b"});
  const std::string wrong[] = {"GET / HTTP/1.1\r\n\r\n", std::string(76, '\xff'), std::string(100'000, 'x'), "",
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
  char byte = 0;
  EXPECT_LE(::recv(open.front().get(), &byte, 1, 0), 0) << "who speaks HTTP is let in";
}

TEST(Group, TwoThatListenInOneRangeTakeDifferentPortsAndAFullRangeIsAnError) {
  LoopThread loop;
  const Acceptor first(loop, {"127.0.0.1"}, {});
  const int port = first.port();
  EXPECT_THROW(Acceptor(loop, {"127.0.0.1"}, {port, port}), Failure);
  EXPECT_THROW(Acceptor(loop, {"203.0.113.7"}, {}), Failure);
}

}  // namespace
}  // namespace fairring
