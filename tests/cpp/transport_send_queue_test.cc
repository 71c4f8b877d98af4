// Which of what waits for a peer goes first.
#include "transport/send_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "transport/order.h"

namespace fairring {
namespace {

constexpr std::uint64_t kKiB = 1 << 10;
constexpr std::uint32_t kChunk = 64 * kKiB;

struct Waiting {
  SendQueue sendQueue;
  std::vector<std::byte> bytes{4 << 20};

  void put(Order order, std::uint64_t size) {
    const Message message{.header = {.slice = firstSlice(order), .bytes = size}, .data = bytes.data()};
    sendQueue.put(std::span(&message, 1), nullptr);
  }
  // The message that the next chunk is of: its order and size.
  std::pair<Order, std::uint64_t> next() {
    const SendQueue::Chunk chunk = sendQueue.take(kChunk);
    return {orderOf(chunk.header.message.slice), chunk.header.message.bytes};
  }
};

TEST(SendQueue, SmallMessagesGoFirstThenThoseOfSmallCalls) {
  Waiting waiting;
  waiting.put(Order::Bulk, 2 * kChunk);
  waiting.put(Order::Express, kChunk + 1);
  waiting.put(Order::Bulk, 8);
  EXPECT_EQ(waiting.next(), std::pair(Order::Bulk, std::uint64_t{8}));
  EXPECT_EQ(waiting.next().first, Order::Express);
  EXPECT_EQ(waiting.next().first, Order::Express);
  EXPECT_EQ(waiting.next().first, Order::Bulk);
  EXPECT_EQ(waiting.next().first, Order::Bulk);
  EXPECT_TRUE(waiting.sendQueue.empty());
}

TEST(SendQueue, BulkIsNotStarvedByAnEndlessRowOfSmallMessages) {
  Waiting waiting;
  waiting.put(Order::Bulk, 4 << 20);
  std::uint64_t bulk = 0;
  std::uint64_t small = 0;
  for (int i = 0; i < 1000; ++i) {
    waiting.put(Order::Express, 16 * kKiB);
    waiting.put(Order::Express, 16 * kKiB);
    (waiting.next().first == Order::Bulk ? bulk : small) += 1;
  }
  EXPECT_EQ(bulk, small / (SendQueue::kMostAhead / (16 * kKiB)));
}

TEST(SendQueue, TheMemoryOfACopyServesTheNextOne) {
  Waiting waiting;
  std::set<const std::byte*> places;
  for (std::uint8_t value = 1; value <= 5; ++value) {
    std::ranges::fill(waiting.bytes, std::byte{value});
    waiting.put(Order::Express, 2 * kKiB - value);
    std::ranges::fill(waiting.bytes, std::byte{0});
    const SendQueue::Chunk chunk = waiting.sendQueue.take(kChunk);
    EXPECT_EQ(chunk.header.bytes, 2 * kKiB - value);
    EXPECT_TRUE(std::all_of(chunk.data, chunk.data + chunk.header.bytes,
                            [value](std::byte byte) { return byte == std::byte{value}; }));
    places.insert(chunk.data);
    waiting.sendQueue.acknowledged(chunk);
  }
  EXPECT_EQ(places.size(), 1U);
  EXPECT_TRUE(waiting.sendQueue.drained());
}

}  // namespace
}  // namespace fairring
