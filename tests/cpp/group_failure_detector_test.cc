// The verdict on each sign that a peer is gone, without any connection. The loop is stepped by hand.
#include "group/failure_detector.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "plan/topology.h"

namespace fairring {
namespace {

using std::chrono::milliseconds;
using Kind = FailureDetector::Sign::Kind;
using Standing = FailureDetector::Standing;
using Verdict = FailureDetector::Verdict;

constexpr int kHere = 1;
constexpr int kLower = 0;  // connects to nobody here
constexpr int kHigher = 2;

RankFacts factsOf(const std::string& machine) {
  return {{machine, ""}, "host-of-" + machine, {"127.0.0.1"}, 1, "same", "", "", {}};
}

struct Rig {
  Loop loop;
  const std::vector<RankFacts> facts{factsOf("a"), factsOf("b"), factsOf("c")};
  const Neighbours neighbours{Topology(placesOf(facts)), {kLower, kHigher}, facts, kHere};
  const Diagnostics diagnostics{neighbours, kHere, "job"};
  Standing standing;
  std::vector<std::string> done;  // what was decided, in words
  std::vector<std::function<void(const Error&)>> asked;
  FailureDetector detector;

  explicit Rig(bool hasStore = false)
      : detector(loop, neighbours, diagnostics, kHere, ways(hasStore), milliseconds(5)) {}

  FailureDetector::Ways ways(bool hasStore) {
    FailureDetector::Ways ways{
        .standingOf = [this](int) { return standing; },
        .connectAgain = [this](int) { done.emplace_back("connect again"); },
        .probeListener = [this](int) { done.emplace_back("probe"); },
        .hasLeft = [this](Kind, int) { done.emplace_back("has left"); },
        .loseMessages = [this](int, const Error& why) { done.push_back("messages: " + why.text()); },
        .fail = [this](const Error& why) { fail(why); },
        .lookForFailure = nullptr};
    if (hasStore) ways.lookForFailure = [this](auto found) { asked.push_back(std::move(found)); };
    return ways;
  }
  void fail(const Error& why) {
    done.push_back("group: " + why.text());
    detector.close();
  }
  void onLoop(const std::function<void()>& task) {
    loop.post(task);
    loop.runOnce(milliseconds(0));
  }
  Verdict on(const FailureDetector::Sign& sign, bool hasHeard) {
    Verdict verdict{};
    onLoop([&] {
      if (hasHeard) detector.heard(sign.peer);
      verdict = detector.on(sign);
    });
    return verdict;
  }
  std::string last() const { return done.empty() ? "" : done.back(); }
  void runUntilDone() {
    while (done.empty()) loop.runOnce(milliseconds(60'000));
  }
};

const Error kReset = makeError(ErrorKind::Connection, "reset by peer");
const Error kRefusedByTls = makeError(ErrorKind::Configuration, "its certificate is refused");
const Error kNobodyListens = makeError(ErrorKind::PeerDied, "refused");
const Error kNoAnswer = makeError(ErrorKind::Timeout, "no answer");

constexpr Standing kStranger{};
constexpr Standing kNeighbour{.isNeighbour = true, .isConnected = true};
constexpr Standing kAwaited{.isAwaited = true};
constexpr Standing kLeft{.isNeighbour = true, .hasLeft = true};
constexpr Standing kAnswered{.isNeighbour = true, .hasLeft = true, .isAnswered = true};

struct Row {
  const char* about;
  FailureDetector::Sign sign;
  bool hasHeard;
  Standing standing;
  Verdict verdict;
  const char* text;  // in what was done
};

TEST(FailureDetector, EachSignHasItsVerdict) {
  const std::vector<Row> rows{
      {"a neighbour dies", {Kind::ControlEnded, kLower}, true, kNeighbour, Verdict::Dead, "without a goodbye"},
      {"a rank with messages dies", {Kind::ControlEnded, kLower}, true, kStranger, Verdict::Dead, "without a goodbye"},
      {"it leaves", {Kind::ControlEnded, kLower}, true, kLeft, Verdict::HasLeft, "has left"},
      {"it never spoke, and connects",
       {Kind::ControlEnded, kHigher},
       false,
       kNeighbour,
       Verdict::DeadUnlessTold,
       "died"},
      {"it never spoke, and is connected to",
       {Kind::ControlEnded, kLower},
       false,
       kNeighbour,
       Verdict::ConnectAgain,
       "connect again"},
      {"no call needs it", {Kind::ControlEnded, kLower}, false, kStranger, Verdict::MessagesLost, "with a message due"},
      {"a channel ends", {Kind::ChannelEnded, kLower, kReset}, true, kNeighbour, Verdict::AwaitLastWord, ""},
      {"a channel of one that left", {Kind::ChannelEnded, kLower}, true, kLeft, Verdict::HasLeft, "has left"},
      {"messages end", {Kind::MessagesEnded, kLower}, true, kStranger, Verdict::AwaitLastWord, ""},
      {"messages of one that left", {Kind::MessagesEnded, kLower}, true, kAnswered, Verdict::HasLeft, "has left"},
      {"a neighbour is unreachable",
       {Kind::Unlinked, kLower, kNoAnswer},
       false,
       kNeighbour,
       Verdict::DeadUnlessTold,
       "no answer"},
      {"nobody listens there",
       {Kind::Unlinked, kLower, kNobodyListens},
       false,
       kNeighbour,
       Verdict::DeadUnlessTold,
       "group: rank 0 (host-of-a) died, or ended, before"},
      {"TLS refuses a neighbour",
       {Kind::Unlinked, kLower, kRefusedByTls},
       false,
       kNeighbour,
       Verdict::Dead,
       "certificate"},
      {"TLS refuses a stranger",
       {Kind::Unlinked, kLower, kRefusedByTls},
       false,
       kStranger,
       Verdict::MessagesLost,
       "messages: rank 1 (host-of-b)"},
      {"TLS refuses one with a message",
       {Kind::Unlinked, kLower, kRefusedByTls},
       false,
       kAwaited,
       Verdict::Dead,
       "certificate"},
      {"its process knows no such group",
       {Kind::Unlinked, kLower, kReset},
       false,
       kAwaited,
       Verdict::MessagesLost,
       "with a message due"},
      {"its listener refuses", {Kind::Refused, kLower}, false, kNeighbour, Verdict::DeadUnlessTold, "nobody listens"},
      {"that of a sender", {Kind::Refused, kLower}, false, kAwaited, Verdict::DeadUnlessTold, "nobody listens"},
      {"that of a stranger", {Kind::Refused, kLower}, false, kStranger, Verdict::MessagesLost, "with a message due"},
      {"it is stopped",
       {Kind::Stopped, kLower, {}, milliseconds(1500)},
       false,
       kNeighbour,
       Verdict::DeadUnlessTold,
       "for 1.5 s"},
      {"it is silent, and has not come", {Kind::Silent, kHigher}, false, kNeighbour, Verdict::ProbeListener, "probe"},
      {"a stranger is silent", {Kind::Silent, kHigher}, false, kStranger, Verdict::Alive, ""},
      {"it is silent for the first time", {Kind::Silent, kLower}, true, kNeighbour, Verdict::Alive, ""},
      {"it left and is silent", {Kind::Silent, kLower}, true, kAnswered, Verdict::Alive, ""},
      {"it left, and a call needs it", {Kind::Needed, kLower}, true, kAnswered, Verdict::Dead, "has left the group"},
      {"it leaves, and owes something", {Kind::Needed, kLower}, true, kLeft, Verdict::Dead, "began to leave"},
  };
  for (const Row& row : rows) {
    Rig rig;
    rig.standing = row.standing;
    EXPECT_EQ(rig.on(row.sign, row.hasHeard), row.verdict) << row.about;
    EXPECT_NE(rig.last().find(row.text), std::string::npos) << row.about << ": " << rig.last();
    EXPECT_EQ(rig.last().starts_with("group: "), row.verdict == Verdict::Dead || row.verdict == Verdict::DeadUnlessTold)
        << row.about;
  }
}

TEST(FailureDetector, AChannelsEndCountsAfterTheLastWord) {
  struct End {
    Kind kind;
    bool hasHeard;
    Standing then;  // when the time for the last word is over
    const char* text;
  };
  const std::vector<End> ends{
      {Kind::ChannelEnded, true, kNeighbour, "group: the data connection between rank 1 (host-of-b) and rank 0"},
      {Kind::ChannelEnded, false, kNeighbour, "group: rank 0 (host-of-a) died"},
      {Kind::ChannelEnded, true, kLeft, "has left"},
      {Kind::MessagesEnded, true, kNeighbour, "group: the data connection"},
      {Kind::MessagesEnded, true, kStranger, "messages: rank 0 (host-of-a) died, or left"},
      {Kind::MessagesEnded, true, kAnswered, "has left"},
  };
  for (const End& end : ends) {
    Rig rig;
    rig.standing = kNeighbour;
    EXPECT_EQ(rig.on({end.kind, kLower, kReset}, end.hasHeard), Verdict::AwaitLastWord);
    rig.standing = end.then;
    rig.runUntilDone();
    EXPECT_TRUE(rig.last().starts_with(end.text)) << rig.last();
  }
}

TEST(FailureDetector, AnUnheardPeerIsConnectedToOnceMoreOnly) {
  Rig rig;
  rig.standing = kNeighbour;
  EXPECT_EQ(rig.on({Kind::ControlEnded, kLower}, false), Verdict::ConnectAgain);
  EXPECT_EQ(rig.on({Kind::ControlEnded, kLower}, false), Verdict::DeadUnlessTold);
}

TEST(FailureDetector, BytesThatComeAreASignOfLife) {
  Rig rig;
  rig.standing = kNeighbour;
  for (std::uint64_t bytes = 0; bytes < 3; ++bytes) {
    rig.standing.bytesSeen = bytes;
    EXPECT_EQ(rig.on({Kind::Silent, kLower}, true), Verdict::Alive);
  }
  EXPECT_EQ(rig.on({Kind::Silent, kLower, {}, milliseconds(2000)}, true), Verdict::Dead);
  EXPECT_NE(rig.last().find("no sign of life for 2 s"), std::string::npos) << rig.last();
}

TEST(FailureDetector, TheStoresReasonWinsOverTheSuspicion) {
  const Error reason = makeError(ErrorKind::PeerDied, "rank 7 died");
  for (const Error& told : {reason, Error()}) {
    Rig rig(true);
    rig.standing = kNeighbour;
    rig.on({Kind::Refused, kLower}, false);
    rig.on({Kind::Refused, kHigher}, false);
    ASSERT_EQ(rig.asked.size(), 1U) << "one question is enough";
    EXPECT_EQ(rig.last(), "");
    rig.asked.front()(told);
    rig.runUntilDone();
    EXPECT_NE(rig.last().find(told ? "rank 7 died" : "nobody listens"), std::string::npos) << rig.last();
  }
}

TEST(FailureDetector, AStoreThatDoesNotAnswerIsNotWaitedFor) {
  Rig rig(true);
  rig.standing = kNeighbour;
  rig.on({Kind::Refused, kLower}, false);
  rig.runUntilDone();
  EXPECT_NE(rig.last().find("nobody listens"), std::string::npos) << rig.last();
  rig.asked.front()(kReset);
  rig.onLoop([] {});
  EXPECT_EQ(rig.done.size(), 1U) << "its answer comes too late";
}

TEST(FailureDetector, ARankThatTlsRefusedCannotBecomeANeighbour) {
  Rig rig;
  rig.on({Kind::Unlinked, kLower, kRefusedByTls}, false);
  rig.onLoop([&] { rig.detector.linked(); });
  EXPECT_EQ(rig.done.size(), 1U) << "no call needs it";
  rig.standing = kNeighbour;
  rig.onLoop([&] { rig.detector.linked(); });
  EXPECT_TRUE(rig.last().starts_with("group: ")) << rig.last();
}

TEST(FailureDetector, NoSignCountsAfterTheFirstError) {
  Rig rig;
  rig.standing = kNeighbour;
  EXPECT_EQ(rig.on({Kind::ChannelEnded, kLower}, true), Verdict::AwaitLastWord);
  EXPECT_EQ(rig.on({Kind::ControlEnded, kHigher}, true), Verdict::Dead);
  EXPECT_EQ(rig.on({Kind::ControlEnded, kLower}, true), Verdict::Alive);
  bool isLater = false;
  rig.onLoop([&] { rig.loop.at(rig.loop.now() + milliseconds(10), [&] { isLater = true; }); });
  while (!isLater) rig.loop.runOnce(milliseconds(60'000));
  EXPECT_EQ(rig.done.size(), 1U);
}

}  // namespace
}  // namespace fairring
