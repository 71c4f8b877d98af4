// Chains of ranks that wait for each other, in a loop whose time is the rig's: each rank's inquiry asks the others'.
#include "group/inquiry.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fairring {
namespace {

using Reason = Inquiry::Reason;
using std::chrono::milliseconds;

struct Rig {
  explicit Rig(int ranks) : said(static_cast<std::size_t>(ranks)), concluded(said.size()) {
    for (int rank = 0; rank < ranks; ++rank) {
      at(rank).rank = rank;
      inquiries.push_back(std::make_unique<Inquiry>(loop, waysOf(rank)));
    }
  }
  ~Rig() {
    loop.post([this] {
      for (const auto& inquiry : inquiries) inquiry->close();
    });
    loop.runOnce(milliseconds(0));
  }

  Account& at(int rank) { return said[static_cast<std::size_t>(rank)]; }
  // Rank `rank` has made so many calls, and is in the last one, waiting for these.
  void waits(int rank, std::uint64_t call, std::vector<int> others) {
    at(rank).calls = at(rank).inCall = call;
    at(rank).waitsFor = std::move(others);
  }
  void idles(int rank, std::uint64_t calls) { at(rank).calls = calls; }

  Inquiry::Ways waysOf(int rank) {
    return {[this, rank] { return at(rank); },
            [this, rank](int peer) {
              if (absent.contains({rank, peer})) return false;
              ++questions;
              deliver(rank, peer, [this, rank, peer] { inquiry(peer).onQuestion(rank); });
              return true;
            },
            [this, rank](int peer, const Account& account) {
              ++accounts;
              deliver(rank, peer, [this, rank, peer, account] { inquiry(peer).onAccount(rank, account); });
            },
            [this, rank](const Inquiry::Findings& findings) {
              concluded[static_cast<std::size_t>(rank)] = findings;
              concludedAfter = time;
            }};
  }
  Inquiry& inquiry(int rank) { return *inquiries[static_cast<std::size_t>(rank)]; }
  void deliver(int from, int to, std::function<void()> task) {
    if (!stopped.contains(to) && !cut.contains({from, to})) loop.post(std::move(task));
  }

  const Inquiry::Findings& ask(int rank) {
    loop.post([this, rank] { inquiry(rank).begin(); });
    while (!concluded[static_cast<std::size_t>(rank)]) {
      while (loop.runOnce(milliseconds(0))) {
      }
      if (concluded[static_cast<std::size_t>(rank)] || time > milliseconds(60'000)) break;
      time += milliseconds(10);
    }
    static const Inquiry::Findings kNone;
    const auto& findings = concluded[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(findings) << "rank " << rank << " has not concluded in a minute";
    return findings ? *findings : kNone;
  }

  milliseconds time{0};
  Loop loop{[this] { return Loop::Clock::time_point(time); }};
  std::vector<Account> said;
  std::set<int> stopped;
  std::set<std::pair<int, int>> cut;     // from, to: nothing arrives
  std::set<std::pair<int, int>> absent;  // from, to: there is no connection
  std::vector<std::unique_ptr<Inquiry>> inquiries;
  std::vector<std::optional<Inquiry::Findings>> concluded;
  milliseconds concludedAfter{0};
  int questions = 0;
  int accounts = 0;
};

// 2x2: rank 3 waits for 1 and 2, which are in the call before, and wait for 0.
void stream(Rig& rig) {
  rig.waits(1, 17, {0});
  rig.waits(2, 17, {0});
  rig.waits(3, 18, {1, 2});
}

TEST(Inquiry, AStoppedRankIsFoundBehindThoseThatWaitForIt) {
  for (const int asking : {1, 2, 3}) {
    Rig rig(4);
    stream(rig);
    rig.stopped = {0};
    const auto findings = rig.ask(asking);
    ASSERT_EQ(findings.size(), 1U) << asking;
    EXPECT_EQ(findings[0].reason, Reason::Silent);
    EXPECT_EQ(findings[0].rank, 0);
    EXPECT_EQ(findings[0].waiting.inCall, 17U);
    EXPECT_LE(rig.concludedAfter, Inquiry::kTime);
  }
}

TEST(Inquiry, ARankWhoseProgramHasNotMadeTheCallIsFoundAtOnce) {
  Rig rig(4);
  stream(rig);
  rig.idles(0, 16);
  const auto findings = rig.ask(3);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].reason, Reason::Behind);
  EXPECT_EQ(findings[0].rank, 0);
  EXPECT_EQ(findings[0].account.value_or(Account{}).calls, 16U);
  EXPECT_LE(rig.concludedAfter, milliseconds(20)) << "nobody is silent, so nobody is waited for";
}

TEST(Inquiry, ARankWhoseDeviceHasNotComeToTheCallIsFoundFromAnywhereAndByItself) {
  for (const int asking : {0, 3}) {
    Rig rig(4);
    stream(rig);
    rig.waits(0, 17, {});
    rig.at(0).isOnDevice = true;
    const auto findings = rig.ask(asking);
    ASSERT_EQ(findings.size(), 1U) << asking;
    EXPECT_EQ(findings[0].reason, Reason::OnDevice);
    EXPECT_EQ(findings[0].rank, 0);
    EXPECT_LE(rig.concludedAfter, milliseconds(20));
  }
}

TEST(Inquiry, ARankThatIsStoppedCountsMoreThanOneThatComputes) {
  Rig rig(4);
  rig.waits(1, 17, {0});
  rig.idles(2, 16);
  rig.waits(3, 17, {1, 2});
  rig.stopped = {0};
  const auto findings = rig.ask(3);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].rank, 0);
  EXPECT_EQ(findings[1].reason, Reason::Behind);
}

TEST(Inquiry, OfAChainOfEightTheLastIsFound) {
  Rig rig(8);
  for (int rank = 0; rank < 7; ++rank) rig.waits(rank, 5, {rank + 1});
  rig.stopped = {7};
  const auto findings = rig.ask(0);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].rank, 7);
  EXPECT_EQ(findings[0].waiting.rank, 6);
  EXPECT_LE(rig.concludedAfter, Inquiry::kTime);
}

TEST(Inquiry, RanksThatAllWaitForEachOtherAreNotCulprits) {
  Rig rig(2);
  rig.waits(0, 5, {1});
  rig.waits(1, 5, {0});
  EXPECT_TRUE(rig.ask(0).empty());
  EXPECT_LE(rig.concludedAfter, Inquiry::kTime);
}

TEST(Inquiry, TwoThatDoNotHearEachOtherAreNamedWhereBothAnswerAThird) {
  Rig rig(3);
  rig.waits(0, 5, {1, 2});
  rig.waits(1, 5, {0, 2});
  rig.waits(2, 5, {0, 1});
  rig.cut = {{0, 2}, {2, 0}};
  for (const int asking : {0, 1, 2}) {
    const auto findings = rig.ask(asking);
    ASSERT_FALSE(findings.empty()) << asking;
    EXPECT_EQ(findings[0].reason, Reason::CutOff);
    EXPECT_LE(rig.concludedAfter, Inquiry::kTime * (1 + asking));
    EXPECT_EQ((std::set<int>{findings[0].rank, findings[0].waiting.rank}), (std::set<int>{0, 2}));
  }
}

TEST(Inquiry, ARankThatIsCutOffIsSilentToAllOthersAndTheyToIt) {
  Rig rig(3);
  rig.waits(0, 5, {1, 2});
  rig.waits(1, 5, {0, 2});
  rig.waits(2, 5, {0, 1});
  rig.cut = {{0, 2}, {2, 0}, {1, 2}, {2, 1}};
  for (const int asking : {0, 1}) {
    const auto findings = rig.ask(asking);
    ASSERT_EQ(findings.size(), 1U);
    EXPECT_EQ(findings[0].reason, Reason::Silent);
    EXPECT_EQ(findings[0].rank, 2);
  }
  EXPECT_EQ(rig.ask(2).size(), 2U);
}

TEST(Inquiry, ARankWithoutAConnectionIsAbsent) {
  Rig rig(3);
  rig.waits(0, 1, {1});
  rig.waits(1, 1, {2});
  rig.absent = {{1, 2}};
  const auto findings = rig.ask(0);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].reason, Reason::Absent);
  EXPECT_EQ(findings[0].rank, 2);
}

TEST(Inquiry, WhoOwesAMessageAndWaitsForNobodyIsFound) {
  Rig rig(3);
  rig.at(0).messagesOf = {1};
  rig.at(1).messagesOf = {2};
  const auto findings = rig.ask(0);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].reason, Reason::NoWord);
  EXPECT_EQ(findings[0].rank, 2);
  EXPECT_EQ(findings[0].waiting.rank, 1);
}

TEST(Inquiry, WhoHasEndedItsPartIsNotBehind) {
  Rig rig(2);
  rig.waits(1, 4, {0});
  rig.idles(0, 4);
  const auto findings = rig.ask(1);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].reason, Reason::Delivered);
}

TEST(Inquiry, ALateRankAnswersLaterAndIsAskedAnew) {
  Rig rig(3);
  rig.waits(0, 2, {1});
  rig.waits(1, 2, {2});
  rig.stopped = {2};
  EXPECT_EQ(rig.ask(0).at(0).reason, Reason::Silent);
  rig.time += milliseconds(5'000);
  rig.stopped.clear();
  rig.idles(2, 1);
  rig.concluded[0].reset();
  EXPECT_EQ(rig.ask(0).at(0).reason, Reason::Behind);
}

// All ranks of 40 machines are late at once, each waits for all others, and one is stopped.
TEST(Inquiry, AWorldOfManyAsksEachPairOnce) {
  constexpr int kRanks = 40;
  Rig rig(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<int> others;
    for (int other = 0; other < kRanks; ++other) {
      if (other != rank) others.push_back(other);
    }
    rig.waits(rank, 3, others);
  }
  rig.stopped = {kRanks - 1};
  for (int rank = 0; rank < kRanks - 1; ++rank) rig.loop.post([&rig, rank] { rig.inquiry(rank).begin(); });
  for (int rank = 0; rank < kRanks - 1; ++rank) {
    const auto findings = rig.ask(rank);
    ASSERT_EQ(findings.size(), 1U);
    EXPECT_EQ(findings[0].rank, kRanks - 1);
  }
  EXPECT_LE(rig.questions, kRanks * kRanks);
}

}  // namespace
}  // namespace fairring
