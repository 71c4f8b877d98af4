// Messages put together from chunks: any order, repetitions, and chunks that no honest sender makes.
#include "transport/reassembly.h"

#include <gtest/gtest.h>

#include <cstring>

#include "transport_channels_mesh.h"

namespace fairring {
namespace {

constexpr std::uint32_t kChunk = 8 << 10;

class Messages : public ::testing::Test {
 protected:
  ChunkHeader chunk(std::uint64_t number, std::uint64_t offset, std::uint32_t bytes = kChunk) const {
    return {.message = dataMessage(number, bytes_).header, .number = number, .offset = offset, .bytes = bytes};
  }
  // Writes the chunk where the reassembly wants it; the bytes of a chunk that is there already change nothing.
  Error take(const ChunkHeader& header) {
    if (const Error error = faultOf(header)) return error;
    if (const Error error = reassembly_.begin(header)) return error;
    if (std::byte* place = reassembly_.place(header)) std::memcpy(place, bytes_.data() + header.offset, header.bytes);
    reassembly_.complete(header);
    return {};
  }
  const Bytes& received(std::uint64_t number) { return receiver_.at(1, dataMessage(number, bytes_).header); }

  const Bytes bytes_ = pattern(3 * kChunk, 7);
  Recorder receiver_;
  Reassembly reassembly_{1, receiver_};
};

TEST_F(Messages, ChunksInAnyOrderMakeTheMessage) {
  for (const std::uint64_t offset : {2 * kChunk, 0U, kChunk}) {
    EXPECT_TRUE(receiver_.arrivals.empty());
    EXPECT_FALSE(take(chunk(0, offset)));
  }
  EXPECT_EQ(receiver_.arrivals.size(), 1U);
  EXPECT_EQ(receiver_.asked.size(), 1U);
  EXPECT_EQ(received(0), bytes_);
}

TEST_F(Messages, MessagesMayOvertakeEachOther) {
  for (const std::uint64_t offset : {0U, kChunk, 2 * kChunk}) {
    for (const std::uint64_t number : {2, 0, 1}) EXPECT_FALSE(take(chunk(number, offset)));
  }
  EXPECT_EQ(receiver_.arrivals.size(), 3U);
  for (const std::uint64_t number : {0, 1, 2}) EXPECT_EQ(received(number), bytes_);
}

TEST_F(Messages, WhatComesAgainIsThrownAway) {
  for (const std::uint64_t offset : {0U, 0U, kChunk}) EXPECT_FALSE(take(chunk(0, offset)));
  EXPECT_EQ(reassembly_.place(chunk(0, 0)), nullptr);
  EXPECT_FALSE(take(chunk(0, 2 * kChunk)));
  EXPECT_FALSE(take(chunk(0, kChunk)));
  EXPECT_EQ(reassembly_.place(chunk(0, kChunk)), nullptr);
  EXPECT_EQ(receiver_.arrivals.size(), 1U);
}

// A lane broke in the middle of a chunk, and another brings it while the rest of the first may still be read.
TEST_F(Messages, AChunkThatTwoLanesBringCountsOnce) {
  EXPECT_FALSE(take(chunk(0, 0)));
  EXPECT_FALSE(take(chunk(0, kChunk)));
  EXPECT_FALSE(reassembly_.begin(chunk(0, 2 * kChunk)));
  EXPECT_FALSE(take(chunk(0, 2 * kChunk)));
  EXPECT_EQ(reassembly_.place(chunk(0, 2 * kChunk)), nullptr);
  reassembly_.complete(chunk(0, 2 * kChunk));
  EXPECT_EQ(receiver_.arrivals.size(), 1U);
}

TEST_F(Messages, ChunksThatDoNotFitAreRefused) {
  EXPECT_FALSE(take(chunk(0, kChunk)));
  EXPECT_TRUE(take(chunk(0, kChunk / 2)));
  EXPECT_TRUE(take(chunk(0, kChunk + kChunk / 2)));
  EXPECT_TRUE(take(chunk(0, kChunk, kChunk / 2)));
  ChunkHeader other = chunk(0, 0);
  other.message.lastField = 1;
  EXPECT_TRUE(take(other));
  EXPECT_TRUE(take(chunk(Reassembly::kMostAhead + 2, 0)));
  EXPECT_TRUE(receiver_.arrivals.empty());
}

TEST_F(Messages, AMessageWithoutAPlaceIsRefused) {
  receiver_.refused = 1;
  const Error error = take(chunk(0, 0));
  ASSERT_TRUE(error);
  EXPECT_NE(error.text().find("refused a part"), std::string::npos);
}

TEST_F(Messages, HeadersThatNobodyWritesAreFaults) {
  ChunkHeader acknowledgement{.message = {.kind = kNoMessage}, .bytes = 1};
  for (const ChunkHeader& header :
       {acknowledgement, chunk(0, 3 * kChunk + 1, 0), chunk(0, 0, 3 * kChunk + 1), chunk(0, 0, 100),
        chunk(0, 3 * kChunk, 0), chunk(0, ~std::uint64_t{0}, kChunk), chunk(0, 0, ~std::uint32_t{0})}) {
    EXPECT_TRUE(faultOf(header));
  }
  EXPECT_FALSE(faultOf({.message = {.kind = kNoMessage}, .acked = 7}));
  EXPECT_FALSE(faultOf({.message = {.kind = kEnd}}));
}

}  // namespace
}  // namespace fairring
