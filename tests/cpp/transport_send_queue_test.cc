// Which of what waits for a peer goes first.
#include "transport/send_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "transport/traffic_class.h"

namespace fairring {
namespace {

constexpr std::uint64_t kKiB = 1 << 10;
constexpr std::uint32_t kChunk = 64 * kKiB;

struct Waiting {
  SendQueue sendQueue;
  std::vector<std::byte> bytes{4 << 20};

  void put(TrafficClass trafficClass, std::uint64_t size) {
    const Message message{.header = {.slice = firstSlice(trafficClass), .bytes = size}, .data = bytes.data()};
    sendQueue.put(std::span(&message, 1), nullptr);
  }
  // The message that the next chunk is of: its class and size.
  std::pair<TrafficClass, std::uint64_t> next() {
    const SendQueue::Chunk chunk = sendQueue.take(kChunk);
    return {trafficClassOf(chunk.header.message.slice), chunk.header.message.bytes};
  }
};

TEST(SendQueue, SmallMessagesGoFirstThenThoseOfSmallCalls) {
  Waiting waiting;
  waiting.put(TrafficClass::Bulk, 2 * kChunk);
  waiting.put(TrafficClass::Express, kChunk + 1);
  waiting.put(TrafficClass::Bulk, 8);
  EXPECT_EQ(waiting.next(), std::pair(TrafficClass::Bulk, std::uint64_t{8}));
  EXPECT_EQ(waiting.next().first, TrafficClass::Express);
  EXPECT_EQ(waiting.next().first, TrafficClass::Express);
  EXPECT_EQ(waiting.next().first, TrafficClass::Bulk);
  EXPECT_EQ(waiting.next().first, TrafficClass::Bulk);
  EXPECT_TRUE(waiting.sendQueue.empty());
}

TEST(SendQueue, BulkIsNotStarvedByAnEndlessRowOfSmallMessages) {
  Waiting waiting;
  waiting.put(TrafficClass::Bulk, 4 << 20);
  std::uint64_t bulk = 0;
  std::uint64_t small = 0;
  for (int i = 0; i < 1000; ++i) {
    waiting.put(TrafficClass::Express, 16 * kKiB);
    waiting.put(TrafficClass::Express, 16 * kKiB);
    (waiting.next().first == TrafficClass::Bulk ? bulk : small) += 1;
  }
  EXPECT_EQ(bulk, small / (SendQueue::kMostAhead / (16 * kKiB)));
}

TEST(SendQueue, TheMemoryOfACopyServesTheNextOne) {
  Waiting waiting;
  std::set<const std::byte*> places;
  for (std::uint8_t value = 1; value <= 5; ++value) {
    std::ranges::fill(waiting.bytes, std::byte{value});
    waiting.put(TrafficClass::Express, 2 * kKiB - value);
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
