// The verdict of a trial by its figures.
#include <gtest/gtest.h>

#include "device/trial_verdict.h"

namespace fairring {
namespace {

using Times = TrialFigures::Times;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kNever = TrialVerdict::kNever;
constexpr Times kFaster{.ncclsAlone = 110, .oursAlone = 100, .ncclsAtOnce = 345, .oursAtOnce = 300};
constexpr Times kSlower{.ncclsAlone = 100, .oursAlone = 300, .ncclsAtOnce = 300, .oursAtOnce = 900};
constexpr Times kEqual{.ncclsAlone = 100, .oursAlone = 100, .ncclsAtOnce = 300, .oursAtOnce = 300};

TrialFigures figures(std::uint64_t bytes, Times allReduce, Times reduceScatter, Times allGather) {
  return {.bytes = bytes, .times = {allReduce, reduceScatter, allGather}};
}

TrialVerdict ofAllReduces(Times times) { return verdictOf({figures(kMiB, times, kSlower, kSlower)}); }

TEST(TrialVerdict, ACallIsOursFrom15PercentOn) {
  EXPECT_EQ(ofAllReduces(kFaster).leastBytes.front(), kMiB);
  Times less = kFaster;
  less.ncclsAtOnce = 344;
  EXPECT_EQ(ofAllReduces(less).leastBytes.front(), kNever);
  EXPECT_EQ(ofAllReduces(kEqual).leastBytes.front(), kNever);
}

TEST(TrialVerdict, ACallThatIsSlowerAloneIsNccls) {
  Times slower = kFaster;
  slower.oursAlone = 111;
  EXPECT_EQ(ofAllReduces(slower).leastBytes.front(), kNever);
}

TEST(TrialVerdict, EachKindIsOursFromTheSizeOnFromWhichItIsAlwaysFaster) {
  const TrialVerdict verdict =
      verdictOf({figures(64 << 10, kFaster, kSlower, kFaster), figures(kMiB, kFaster, kFaster, kSlower),
                 figures(8 * kMiB, kFaster, kFaster, kFaster)});
  EXPECT_EQ(verdict.leastBytes, (std::vector<std::uint64_t>{64 << 10, kMiB, 8 * kMiB}));
  EXPECT_EQ(verdict.whyNccls, "");
  EXPECT_NE(verdict.figures.find(
                "all-gather Fairring's from 8 MiB: 64 KiB 110 to 100 us alone (1.10) and 345 to 300 at once (1.15)"),
            std::string::npos)
      << verdict.figures;
}

TEST(TrialVerdict, WithoutAFasterKindAllIsNccls) {
  EXPECT_NE(verdictOf({figures(kMiB, kEqual, kSlower, kEqual)}).whyNccls, "");
}

TEST(TrialVerdict, TheSlowestRankCounts) {
  const TrialFigures quick = figures(kMiB, kFaster, kFaster, kFaster);
  const TrialFigures slow = figures(kMiB, kSlower, kFaster, kFaster);
  const TrialVerdict verdict = verdictOf({slowestOf({quick, slow})});
  EXPECT_EQ(verdict.leastBytes, (std::vector<std::uint64_t>{kNever, kMiB, kMiB}));
}

TEST(TrialVerdict, WhatOneRankRemembersToBeNcclsIsNccls) {
  const TrialVerdict ours = verdictOf({figures(kMiB, kFaster, kFaster, kFaster)});
  const TrialVerdict later = verdictOf({figures(8 * kMiB, kFaster, kFaster, kSlower)});
  EXPECT_EQ(commonVerdict({ours, later}).leastBytes, (std::vector<std::uint64_t>{8 * kMiB, 8 * kMiB, kNever}));
  EXPECT_EQ(commonVerdict({ours, TrialVerdict::allNccls("no gates")}).whyNccls, "no gates");
}

}  // namespace
}  // namespace fairring
