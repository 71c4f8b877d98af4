// The reports of their calls that ranks exchange.
#include "group/peer_progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>

#include "base/fields.h"
#include "exchange/recorder.h"

namespace fairring {
namespace {

void record(CallTable& calls, int count, const std::string& text = "all_reduce SUM of 10 Float32") {
  for (int i = 0; i < count; ++i) calls.enter({text});
}

TEST(PeerProgress, RanksThatMadeOtherCallsAreNoticed) {
  Loop loop;
  CallTable calls[2] = {CallTable(loop), CallTable(loop)};
  PeerProgress one(0, calls[0], loop);
  PeerProgress other(1, calls[1], loop);
  EXPECT_TRUE(one.heard(1, other.beat()));
  record(calls[0], 3);
  EXPECT_TRUE(other.heard(0, one.beat())) << "ahead is not different";
  record(calls[1], 3);
  EXPECT_TRUE(one.heard(1, other.beat()));
  calls[1].enter({"barrier"});
  EXPECT_TRUE(one.heard(1, other.beat())) << "not to be compared yet";
  calls[0].enter({"broadcast"});
  EXPECT_FALSE(one.heard(1, other.beat()));
}

// The rank with the fewest calls of those that it knows of, if it has made fewer than these.
std::optional<PeerProgress::Progress> laggardOf(const PeerProgress& one, std::uint64_t calls) {
  std::optional<PeerProgress::Progress> laggard;
  for (const PeerProgress::Sighting& seen : one.sightings()) {
    if (!seen.progress || seen.progress->calls >= calls) continue;
    calls = seen.progress->calls;
    laggard = seen.progress;
  }
  return laggard;
}

TEST(PeerProgress, TheLaggardIsKnownThoughItIsNoNeighbour) {
  Loop loop;
  CallTable calls[3] = {CallTable(loop), CallTable(loop), CallTable(loop)};  // 0 - 1 - 2 in a row
  PeerProgress left(0, calls[0], loop);
  PeerProgress middle(1, calls[1], loop);
  PeerProgress right(2, calls[2], loop);
  record(calls[0], 5);
  record(calls[1], 5);
  record(calls[2], 3, "barrier");
  middle.heard(2, right.beat());
  middle.heard(0, left.beat());
  left.heard(1, middle.beat());
  const auto laggard = laggardOf(left, 5);
  ASSERT_TRUE(laggard);
  EXPECT_EQ(laggard->rank, 2);
  EXPECT_EQ(laggard->calls, 3U);
  EXPECT_EQ(laggard->last, "barrier");
  right.heard(1, middle.beat());
  EXPECT_FALSE(laggardOf(right, 3)) << "it is the laggard itself";
  record(calls[2], 2, "barrier");
  middle.heard(2, right.beat());
  left.heard(1, middle.beat());
  EXPECT_FALSE(laggardOf(left, 5));
}

TEST(PeerProgress, TheLaggardIsKnownAsFarAwayAsRanksPassItOnAndOldNewsEnd) {
  Loop loop;
  constexpr int kRanks = 6;
  std::deque<CallTable> calls;  // in a row
  std::deque<PeerProgress> ranks;
  for (int r = 0; r < kRanks; ++r) ranks.emplace_back(r, calls.emplace_back(loop), loop, 2);
  for (int r = 0; r < kRanks; ++r) record(calls[r], r == kRanks - 1 ? 3 : 5);
  const auto beatAll = [&] {
    for (int r = 0; r + 1 < kRanks; ++r) {
      ranks[r].heard(r + 1, ranks[r + 1].beat());
      ranks[r + 1].heard(r, ranks[r].beat());
    }
  };
  for (int beats = 0; beats < kRanks; ++beats) beatAll();
  for (int r = 1; r < kRanks - 1; ++r) {
    const auto laggard = laggardOf(ranks[r], 5);
    ASSERT_TRUE(laggard) << r;
    EXPECT_EQ(laggard->rank, kRanks - 1);
  }
  EXPECT_FALSE(laggardOf(ranks[0], 5)) << "five ways apart: two ranks pass on what its neighbour says";
  record(calls[kRanks - 1], 2);
  for (int beats = 0; beats < kRanks; ++beats) beatAll();
  for (const PeerProgress& one : ranks) EXPECT_FALSE(laggardOf(one, 5));
}

TEST(PeerProgress, KeepsTheLeastThatItsClockWasAheadOfABeat) {
  Loop loop;
  CallTable calls(loop);
  PeerProgress peerProgress(0, calls, loop);
  EXPECT_TRUE(peerProgress.clockLeads().empty());
  constexpr std::int64_t kAhead = 3'600'000'000'000;
  const auto beatSent = [](std::int64_t time) {
    return PeerProgress::Beat{.own = {}, .behind = {}, .sent = time, .silence = {}};
  };
  peerProgress.heard(1, beatSent(Recorder::now() - kAhead));
  peerProgress.heard(1, beatSent(Recorder::now() - 2 * kAhead));
  EXPECT_GE(peerProgress.clockLeads().at(1), kAhead);
  EXPECT_LT(peerProgress.clockLeads().at(1), 2 * kAhead);
}

TEST(PeerProgress, TheSilentAreKnownThoughTheyAreNoNeighbours) {
  Loop loop;
  CallTable calls[3] = {CallTable(loop), CallTable(loop), CallTable(loop)};  // 0 - 1 - 2 in a row
  PeerProgress left(0, calls[0], loop);
  PeerProgress middle(1, calls[1], loop);
  PeerProgress right(2, calls[2], loop);
  record(calls[2], 1, "barrier");
  middle.heard(2, right.beat());
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  const std::int64_t before = Recorder::now();
  middle.heard(0, left.beat());
  left.heard(1, middle.beat());
  std::map<std::pair<int, int>, PeerProgress::Sighting> seen;  // by whom, and of whom
  for (const PeerProgress::Sighting& one : left.sightings()) {
    if (one.silent) seen[{one.by, one.rank}] = one;
  }
  ASSERT_TRUE(seen.contains({1, 2}));
  EXPECT_GE(seen.at({1, 2}).silent.value_or(-1), 0);
  ASSERT_TRUE(seen.contains({0, 1}));
  EXPECT_LE(seen.at({0, 1}).silent.value_or(kNever), Recorder::now() - before) << "it has just been heard";
  EXPECT_EQ(middle.sightings().size(), 2U) << "it hears both itself";
  for (const PeerProgress::Sighting& one : middle.sightings()) EXPECT_EQ(one.by, 1);
}

TEST(PeerProgress, ANeighbourThatNeverBeatIsSilentSinceItWasMet) {
  Loop loop;
  CallTable calls[2] = {CallTable(loop), CallTable(loop)};
  PeerProgress left(0, calls[0], loop);
  PeerProgress middle(1, calls[1], loop);
  middle.met(2);
  const std::vector<PeerProgress::Sighting> seen = middle.sightings();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen.front().rank, 2);
  EXPECT_FALSE(seen.front().progress);
  EXPECT_GE(seen.front().silent.value_or(-1), 0);
  left.heard(1, middle.beat());
  const auto told = left.sightings();
  EXPECT_TRUE(std::ranges::any_of(told, [](const auto& one) { return one.by == 1 && one.rank == 2 && one.silent; }));
}

TEST(PeerProgress, ABeatComesBackFromItsText) {
  Loop loop;
  CallTable calls(loop);
  record(calls, 3, "barrier");
  PeerProgress peerProgress(4, calls, loop);
  peerProgress.heard(7, {.own = {-1, 2, "all_reduce"}, .behind = {}, .silence = {}});
  const auto got = fromText<PeerProgress::Beat>(toText(peerProgress.beat()));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->own.rank, 4);
  EXPECT_EQ(got->own.calls, 3U);
  EXPECT_EQ(got->own.last, "barrier");
  EXPECT_EQ(got->hash, calls.last().hash);
  EXPECT_EQ(got->behind.rank, 7);
  EXPECT_EQ(got->behind.calls, 2U);
  EXPECT_EQ(got->behind.last, "all_reduce");
}

}  // namespace
}  // namespace fairring
