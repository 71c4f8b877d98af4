// The order in which the messages that wait for a peer go.
#include "transport/send_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

namespace fairring {
namespace {

constexpr std::uint64_t kKiB = 1 << 10;
constexpr std::uint32_t kChunk = 64 * kKiB;

struct Waiting {
  std::shared_ptr<SpareMemory> spare = std::make_shared<SpareMemory>();
  SendQueue sendQueue{spare};
  std::vector<std::byte> bytes{4 << 20};

  void put(TrafficClass trafficClass, std::uint64_t size) {
    const auto number = static_cast<std::uint64_t>(trafficClass);  // so that it is seen where it comes out
    const Message message{
        .header = {.kind = 1, .fields = {number}, .bytes = size}, .data = bytes.data(), .trafficClass = trafficClass};
    sendQueue.put(std::span(&message, 1), nullptr);
  }
  // The message of the next chunk: its class and size.
  std::pair<TrafficClass, std::uint64_t> next() {
    const SendQueue::Chunk chunk = sendQueue.take(kChunk);
    return {static_cast<TrafficClass>(chunk.header.message.fields[0]), chunk.header.message.bytes};
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
  EXPECT_TRUE(waiting.sendQueue.empty());
}

TEST(SpareMemory, IsLeftToThoseThatNeedMuch) {
  SpareMemory spare;
  const std::vector<std::byte> bytes(256 * kKiB);
  std::vector<std::byte> large = spare.copyOf(bytes);
  const std::byte* const place = large.data();
  spare.keep(std::move(large));
  EXPECT_NE(spare.copyOf(std::span(bytes).first(8)).data(), place);
  EXPECT_EQ(spare.copyOf(std::span(bytes).first(200 * kKiB)).data(), place);
}

TEST(SpareMemory, IsNoMoreThanSoMuch) {
  SpareMemory spare;
  const std::vector<std::byte> bytes(SpareMemory::kMostBytes / 2 + 1);
  std::vector<std::byte> one = spare.copyOf(bytes);
  std::vector<std::byte> other = spare.copyOf(bytes);
  const std::byte* const kept = one.data();
  const std::byte* const dropped = other.data();
  spare.keep(std::move(one));
  spare.keep(std::move(other));
  ASSERT_NE(kept, dropped);
  EXPECT_EQ(spare.copyOf(bytes).data(), kept);
}

}  // namespace
}  // namespace fairring
