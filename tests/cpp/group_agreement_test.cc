// The survivors' agreement on the calls that were under way.
#include "group/agreement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>

namespace fairring {
namespace {

GroupId groupOf(unsigned number) {
  GroupId id{};
  id.front() = static_cast<std::byte>(number & 0xff);
  id.back() = static_cast<std::byte>(number >> 8);
  return id;
}

GroupHistory carried(const GroupHistory& history) { return GroupHistory::decode(history.encode()); }

GroupHistory whoLeft(unsigned group, std::uint64_t complete) {
  GroupHistory history;
  history.leave(groupOf(group), complete);
  return carried(history);
}

TEST(GroupAgreement, NewcomersAloneHaveNothingToAgreeOn) { EXPECT_FALSE(GroupHistory::agree({{}, {}})); }

TEST(GroupAgreement, WhatCountsIsWhatTheLastOfThemHasCompleted) {
  const auto agreed = GroupHistory::agree({whoLeft(1, 18), {}, whoLeft(1, 17)});
  ASSERT_TRUE(agreed);
  EXPECT_EQ(agreed->group, groupOf(1));
  EXPECT_EQ(agreed->complete, 17U);
  EXPECT_EQ(agreed->ofRank, (std::vector<std::optional<std::uint64_t>>{18, std::nullopt, 17}));
}

TEST(GroupAgreement, WhatOneHasLearntHoldsForThoseWhoMissedIt) {
  GroupHistory told = whoLeft(1, 18);
  GroupHistory untold = whoLeft(1, 18);
  // And the third dies: two that meet have 18.
  told.learn(GroupHistory::agree({told, untold, whoLeft(1, 17)}).value_or(Agreement()));
  told.leave(groupOf(2), 1);
  untold.leave(groupOf(2), 0);
  const auto agreed = GroupHistory::agree({carried(untold), carried(told)});
  ASSERT_TRUE(agreed);
  EXPECT_EQ(agreed->group, groupOf(1));
  EXPECT_EQ(agreed->complete, 17U);
}

TEST(GroupAgreement, WhoWasLeftOutAndComesAgainHasNoPart) {
  GroupHistory stayed = whoLeft(1, 5);
  stayed.learn(GroupHistory::agree({stayed}).value_or(Agreement()));
  stayed.leave(groupOf(2), 1);
  const auto agreed = GroupHistory::agree({whoLeft(1, 9), whoLeft(1, 9), carried(stayed)});
  ASSERT_TRUE(agreed);
  EXPECT_EQ(agreed->group, groupOf(2));
  EXPECT_EQ(agreed->ofRank, (std::vector<std::optional<std::uint64_t>>{std::nullopt, std::nullopt, 1}));
}

TEST(GroupAgreement, AnyNumberOfAttemptsThatCameToNothingLosesNothing) {
  GroupHistory history;
  history.leave(groupOf(1), 7);
  for (unsigned attempt = 2; attempt < 100; ++attempt) history.leave(groupOf(attempt), 0);
  const auto agreed = GroupHistory::agree({carried(history)});
  ASSERT_TRUE(agreed);
  EXPECT_EQ(agreed->group, groupOf(1));
  EXPECT_EQ(agreed->complete, 7U);
  EXPECT_EQ(history.ordinalOf(groupOf(1)), 0U);
  EXPECT_EQ(history.ordinalOf(groupOf(99)), 98U);
  EXPECT_EQ(history.ordinalOf(groupOf(100)), 99U);
}

// A training, as its ranks see it: each keeps the states that its calls have led to, and drops those that did not
// count.
class Training {
 public:
  explicit Training(std::uint64_t seed) : random_(seed), ranks_(kRanks) {}

  // A group of some of the ranks meets, and some of them may not see the meeting's end; then it works until it breaks.
  void goOn() {
    std::vector<int> members;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (chance(4)) ranks_[at(rank)] = {};  // it died, and another process has its place
      if (!chance(4)) members.push_back(rank);
    }
    std::shuffle(members.begin(), members.end(), random_);
    const GroupId group = groupOf(++groups_);
    std::vector<GroupHistory> histories;
    for (const int member : members) {
      Rank& rank = ranks_[at(member)];
      if (rank.group) rank.history.leave(*rank.group, rank.calls);
      rank.group = group;
      rank.calls = 0;
      histories.push_back(carried(rank.history));
    }
    if (members.empty()) return;
    meet(members, GroupHistory::agree(histories));
  }

 private:
  static constexpr int kRanks = 5;
  using Mark = std::pair<std::uint64_t, std::uint64_t>;  // the group's ordinal, calls
  struct Rank {
    GroupHistory history;
    std::optional<GroupId> group;
    std::uint64_t calls = 0;
    std::map<Mark, std::string> states;
  };

  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  bool chance(int of) { return std::uniform_int_distribution<>(1, of)(random_) == 1; }

  void meet(const std::vector<int>& members, const std::optional<Agreement>& agreed) {
    const bool breaks = chance(2);
    std::vector<int> met;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (breaks && chance(2)) continue;
      met.push_back(members[i]);
      Rank& rank = ranks_[at(members[i])];
      rank.calls = 1;
      if (agreed) keepWhatCounts(rank, *agreed, i);
    }
    const std::optional<std::string> state = stateOf(met);
    if (breaks || !share(members, state.value_or("new"))) return;
    while (step(members)) {
    }
  }

  static void keepWhatCounts(Rank& rank, const Agreement& agreed, std::size_t index) {
    rank.history.learn(agreed);
    if (!agreed.ofRank[index]) return rank.states.clear();
    rank.states.erase(rank.states.upper_bound({rank.history.ordinalOf(agreed.group), agreed.complete}),
                      rank.states.end());
  }

  // The same on all that have one.
  std::optional<std::string> stateOf(const std::vector<int>& members) const {
    std::optional<std::string> state;
    for (const int member : members) {
      const auto& states = ranks_[at(member)].states;
      if (states.empty()) continue;
      EXPECT_EQ(state.value_or(states.rbegin()->second), states.rbegin()->second);
      state = states.rbegin()->second;
    }
    return state;
  }

  // A call, at whose end all have that state. False: it was broken off, and some have it.
  bool share(const std::vector<int>& members, const std::string& state) {
    const bool breaks = chance(5);
    for (const int member : members) {
      Rank& rank = ranks_[at(member)];
      if (breaks && chance(2)) continue;
      ++rank.calls;
      rank.states[{rank.history.ordinalOf(rank.group.value_or(GroupId())), rank.calls}] = state;
    }
    return !breaks;
  }

  bool step(const std::vector<int>& members) {
    const std::string before = ranks_[at(members.front())].states.rbegin()->second;
    return share(members, before + "," + std::to_string(groups_));
  }

  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  unsigned groups_ = 0;
};

TEST(GroupAgreement, NoTwoRanksThatMeetHaveDifferentStates) {
  for (std::uint64_t seed = 0; seed < 2'000 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Training training(seed);
    for (int meeting = 0; meeting < 20; ++meeting) training.goOn();
  }
}

}  // namespace
}  // namespace fairring
