// What ranks remember of their calls, and what they tell each other of them.
#include "group/journal.h"

#include <gtest/gtest.h>

#include "group/pulse.h"

namespace fairring {
namespace {

void record(Journal& journal, int calls, const std::string& text = "all_reduce SUM of 10 Float32") {
  for (int i = 0; i < calls; ++i) journal.record({text});
}

TEST(Journal, EqualCallsHaveEqualHashes) {
  Journal one;
  Journal other;
  EXPECT_EQ(one.last().number, 0U);
  record(one, 100);
  record(other, 100);
  EXPECT_EQ(one.last().number, 100U);
  EXPECT_EQ(one.last().hash, other.last().hash);
  EXPECT_FALSE(one.differs(100, other.last().hash));
  EXPECT_FALSE(one.differenceTo(other.encode()));
}

TEST(Journal, TheHashCoversAllCallsAndTheirOrder) {
  Journal one;
  Journal other;
  one.record({"a"});
  one.record({"b"});
  other.record({"b"});
  other.record({"a"});
  EXPECT_TRUE(one.differs(2, other.last().hash));
  const auto difference = one.differenceTo(other.encode());
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->number, 1U);
  EXPECT_EQ(difference->here, "a");
  EXPECT_EQ(difference->there, "b");
  EXPECT_TRUE(difference->first);
}

TEST(Journal, TheDigestTellsApartWhatTheTextDoesNot) {
  Journal one;
  Journal other;
  one.record({"all_reduce of 3 tensors", 1});
  other.record({"all_reduce of 3 tensors", 2});
  EXPECT_TRUE(one.differs(1, other.last().hash));
}

TEST(Journal, CallsThatAreNotMadeOrNotKeptDoNotDiffer) {
  Journal journal;
  EXPECT_FALSE(journal.differs(1, 7));
  record(journal, 100);
  EXPECT_FALSE(journal.differs(101, 7));
  EXPECT_FALSE(journal.differs(100 - Journal::kKept, 7));
  EXPECT_TRUE(journal.differs(101 - Journal::kKept, 7));
}

TEST(Journal, ADifferenceBeforeWhatIsKeptIsNotCalledTheFirst) {
  Journal one;
  Journal other;
  one.record({"early"});
  other.record({"other"});
  record(one, 100);
  record(other, 100);
  const auto difference = one.differenceTo(other.encode());
  ASSERT_TRUE(difference);
  EXPECT_FALSE(difference->first);
}

TEST(Journal, TheFirstDifferenceIsFoundThoughOneIsAhead) {
  Journal one;
  Journal other;
  record(one, 70);
  record(other, 70);
  one.record({"all_reduce SUM of 11 Float32"});
  record(other, 30);
  const auto difference = one.differenceTo(other.encode());
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->number, 71U);
  EXPECT_TRUE(difference->first);
}

TEST(Journal, LongAndManyLinedTextsFitIntoAMessage) {
  Journal journal;
  record(journal, 1000, std::string(5000, 'x') + "\nsecond line");
  EXPECT_LT(journal.encode().size(), 32U << 10);
  Journal other;
  record(other, 1000, std::string(5000, 'x') + "\nanother line");
  ASSERT_TRUE(journal.differenceTo(other.encode())) << "what is not shown counts";
}

TEST(Journal, WhatIsNoJournalIsNoDifference) {
  Journal journal;
  record(journal, 5);
  for (const std::string text : {"", "x", "1", "1 2", "99999999999999999999999 1 a\n", "\n\n\n", "-1 -1 -1\n"}) {
    const auto difference = journal.differenceTo(text);
    EXPECT_TRUE(!difference || difference->number == 1) << text;
  }
}

TEST(Pulse, RanksThatMadeOtherCallsAreNoticed) {
  Journal journals[2];
  Pulse one(0, journals[0]);
  Pulse other(1, journals[1]);
  EXPECT_TRUE(one.heard(1, other.beat()));
  record(journals[0], 3);
  EXPECT_TRUE(other.heard(0, one.beat())) << "ahead is not different";
  record(journals[1], 3);
  EXPECT_TRUE(one.heard(1, other.beat()));
  journals[1].record({"barrier"});
  EXPECT_TRUE(one.heard(1, other.beat())) << "not to be compared yet";
  journals[0].record({"broadcast"});
  EXPECT_FALSE(one.heard(1, other.beat()));
}

TEST(Pulse, TheLaggardIsKnownThoughItIsNoNeighbour) {
  Journal journals[3];  // 0 - 1 - 2 in a row
  Pulse left(0, journals[0]);
  Pulse middle(1, journals[1]);
  Pulse right(2, journals[2]);
  record(journals[0], 5);
  record(journals[1], 5);
  record(journals[2], 3, "barrier");
  middle.heard(2, right.beat());
  middle.heard(0, left.beat());
  left.heard(1, middle.beat());
  const auto laggard = left.laggard();
  ASSERT_TRUE(laggard);
  EXPECT_EQ(laggard->rank, 2);
  EXPECT_EQ(laggard->calls, 3U);
  EXPECT_EQ(laggard->last, "barrier");
  right.heard(1, middle.beat());
  EXPECT_FALSE(right.laggard()) << "it is the laggard itself";
  record(journals[2], 2, "barrier");
  middle.heard(2, right.beat());
  left.heard(1, middle.beat());
  EXPECT_FALSE(left.laggard());
}

TEST(Pulse, WhatIsNoBeatIsIgnored) {
  Journal journal;
  Pulse pulse(0, journal);
  record(journal, 2);
  for (const std::string text : {"", "x", "1 2 3", "1 2 -5 x\n"}) EXPECT_TRUE(pulse.heard(1, text)) << text;
  EXPECT_FALSE(pulse.laggard());
}

}  // namespace
}  // namespace fairring
