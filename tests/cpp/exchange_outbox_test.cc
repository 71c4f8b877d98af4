// Which of what waits for a peer goes first.
#include "exchange/outbox.h"

#include <gtest/gtest.h>

#include <vector>

#include "exchange/order.h"

namespace fairring {
namespace {

constexpr std::uint64_t kKiB = 1 << 10;
constexpr std::uint32_t kChunk = 64 * kKiB;

struct Waiting {
  Outbox outbox;
  std::vector<std::byte> bytes{4 << 20};

  void put(Order order, std::uint64_t size) {
    const Part part{.header = {.slice = firstSlice(order), .bytes = size}, .data = bytes.data()};
    outbox.put(std::span(&part, 1), nullptr);
  }
  // The part that the next chunk is of: its order and size.
  std::pair<Order, std::uint64_t> next() {
    const Outbox::Chunk chunk = outbox.take(kChunk);
    return {orderOf(chunk.header.part.slice), chunk.header.part.bytes};
  }
};

TEST(Outbox, SmallPartsGoFirstThenThoseOfSmallCalls) {
  Waiting waiting;
  waiting.put(Order::Bulk, 2 * kChunk);
  waiting.put(Order::Express, kChunk + 1);
  waiting.put(Order::Bulk, 8);
  EXPECT_EQ(waiting.next(), std::pair(Order::Bulk, std::uint64_t{8}));
  EXPECT_EQ(waiting.next().first, Order::Express);
  EXPECT_EQ(waiting.next().first, Order::Express);
  EXPECT_EQ(waiting.next().first, Order::Bulk);
  EXPECT_EQ(waiting.next().first, Order::Bulk);
  EXPECT_TRUE(waiting.outbox.empty());
}

TEST(Outbox, BulkIsNotStarvedByAnEndlessRowOfSmallParts) {
  Waiting waiting;
  waiting.put(Order::Bulk, 4 << 20);
  std::uint64_t bulk = 0;
  std::uint64_t small = 0;
  for (int i = 0; i < 1000; ++i) {
    waiting.put(Order::Express, 16 * kKiB);
    waiting.put(Order::Express, 16 * kKiB);
    (waiting.next().first == Order::Bulk ? bulk : small) += 1;
  }
  EXPECT_EQ(bulk, small / (Outbox::kMostAhead / (16 * kKiB)));
}

}  // namespace
}  // namespace fairring
