#include "engine/staging.h"

#include <gtest/gtest.h>

namespace fairring {
namespace {

constexpr std::uint64_t kPage = StagingRing::kAlignment;

TEST(Staging, GivesConsecutivePiecesAndRefusesWhatDoesNotFit) {
  StagingRing ring(3 * kPage);
  EXPECT_EQ(ring.take(0, kPage, 3 * kPage), 0U);
  EXPECT_EQ(ring.take(1, 1, 3 * kPage), kPage);
  EXPECT_EQ(ring.take(2, 2 * kPage, 3 * kPage), std::nullopt);
  EXPECT_EQ(ring.take(2, kPage, 3 * kPage), 2 * kPage);
}

TEST(Staging, MemoryIsReclaimedInSliceOrderOnly) {
  StagingRing ring(2 * kPage);
  ring.take(0, kPage, 2 * kPage);
  ring.take(1, kPage, 2 * kPage);
  ring.release(1);
  EXPECT_EQ(ring.take(2, kPage, 2 * kPage), std::nullopt);
  ring.release(0);
  EXPECT_EQ(ring.take(2, kPage, 2 * kPage), 0U);
}

TEST(Staging, AWrappedPieceNeverOverlapsAnOlderOne) {
  StagingRing ring(4 * kPage);
  ring.take(0, kPage, 4 * kPage);
  ring.take(1, 2 * kPage, 4 * kPage);
  ring.release(0);
  EXPECT_EQ(ring.take(2, 2 * kPage, 4 * kPage), std::nullopt);  // one page is free at each end
  ring.release(1);
  EXPECT_EQ(ring.take(2, 2 * kPage, 4 * kPage), 0U);
}

TEST(Staging, WhenNothingIsTakenTheSamePagesAreUsedAgain) {
  StagingRing ring(8 * kPage);
  for (std::uint64_t slice = 0; slice < 20; ++slice) {
    EXPECT_EQ(ring.take(slice, 3 * kPage, 8 * kPage), 0U);
    ring.release(slice);
  }
}

TEST(Staging, AskedForLessOfTheRingTheSamePagesAreUsedInTurn) {
  StagingRing ring(8 * kPage);
  EXPECT_EQ(ring.take(0, kPage, 2 * kPage), 0U);
  for (std::uint64_t slice = 1; slice < 20; ++slice) {
    EXPECT_EQ(ring.take(slice, kPage, 2 * kPage), slice % 2 * kPage);
    EXPECT_EQ(ring.take(slice + 1, kPage, 2 * kPage), std::nullopt);
    ring.release(slice - 1);
  }
}

TEST(Staging, NothingTakenIsEmpty) {
  StagingRing ring(kPage);
  EXPECT_TRUE(ring.empty());
  EXPECT_EQ(ring.take(0, 0, kPage), 0U);
  EXPECT_FALSE(ring.empty());
  ring.release(0);
  EXPECT_TRUE(ring.empty());
}

}  // namespace
}  // namespace fairring
