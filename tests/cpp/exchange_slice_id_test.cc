#include "exchange/slice_id.h"

#include <gtest/gtest.h>

namespace fairring {
namespace {

TEST(SliceId, IsEightBytesOnTheWireThatNameItsQueue) {
  EXPECT_EQ((SliceId{SliceQueue::HostBulk, 5}.onWire()), 5U);
  EXPECT_EQ((SliceId{SliceQueue::HostExpress, 5}.onWire()), 0x8000'0000'0000'0005U);
  EXPECT_EQ((SliceId{SliceQueue::Device, 5}.onWire()), 0x4000'0000'0000'0005U);
}

TEST(SliceId, ComesBackFromTheWire) {
  for (const SliceQueue queue : kSliceQueues) {
    for (const std::uint64_t sequence : {0ULL, 1ULL, (1ULL << 62) - 1}) {
      const SliceId slice{queue, sequence};
      EXPECT_EQ(SliceId::fromWire(slice.onWire()), slice);
    }
  }
}

TEST(SliceId, JobsOfExpressSlicesGoBeforeAllOthers) {
  EXPECT_LT(urgencyOf({SliceQueue::HostExpress, 1000}), urgencyOf({SliceQueue::HostBulk, 0}));
  EXPECT_LT(urgencyOf({SliceQueue::HostBulk, 0}), urgencyOf({SliceQueue::HostBulk, 1}));
  EXPECT_LT(urgencyOf({SliceQueue::HostExpress, 1000}), Loop::kPatient);
  EXPECT_GE(urgencyOf({SliceQueue::HostBulk, 0}), Loop::kPatient);
}

}  // namespace
}  // namespace fairring
