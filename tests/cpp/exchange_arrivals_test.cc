#include "exchange/arrivals.h"

#include <gtest/gtest.h>

namespace fairring {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kMB = 1'000'000;

TEST(Arrivals, CountNoTimeInWhichNothingCame) {
  Arrivals arrivals;
  arrivals.begin(3, 0);
  arrivals.end(3, kMB, 10 * kMillisecond);
  arrivals.begin(3, 500 * kMillisecond);
  arrivals.end(3, kMB, 510 * kMillisecond);
  EXPECT_EQ(arrivals.take(), (RatesByPeer{{3, 100 * kMB}}));
}

TEST(Arrivals, CountTimeOnceInWhichSeveralCameFromAPeer) {
  Arrivals arrivals;
  arrivals.begin(3, 0);
  arrivals.begin(3, 4 * kMillisecond);
  arrivals.begin(5, 4 * kMillisecond);
  arrivals.end(3, kMB, 12 * kMillisecond);
  arrivals.end(3, kMB, 20 * kMillisecond);
  arrivals.end(5, kMB, 24 * kMillisecond);
  EXPECT_EQ(arrivals.take(), (RatesByPeer{{3, 100 * kMB}, {5, 50 * kMB}}));
}

TEST(Arrivals, BeginAnewWhenTheyHaveBeenTaken) {
  Arrivals arrivals;
  arrivals.begin(3, 0);
  arrivals.end(3, kMB, 10 * kMillisecond);
  arrivals.take();
  EXPECT_TRUE(arrivals.take().empty());
  arrivals.begin(3, 20 * kMillisecond);
  arrivals.end(3, kMB, 40 * kMillisecond);
  EXPECT_EQ(arrivals.take(), (RatesByPeer{{3, 50 * kMB}}));
}

TEST(Arrivals, TellNothingOfAPeerOfWhichLittleCame) {
  Arrivals arrivals;
  arrivals.begin(3, 0);
  arrivals.end(3, 20'000, kMillisecond);
  EXPECT_TRUE(arrivals.take().empty());
}

}  // namespace
}  // namespace fairring
