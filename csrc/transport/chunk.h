// The framing of a lane: the bytes on a connection after the challenge. A message travels as one chunk or several, each
// a header of fixed size and the bytes that it announces, over any lane that was free. A header without a message
// carries only the acknowledgement, or says that the sender has closed its channel. Values and pure functions; any
// thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "transport/channel.h"

namespace fairring {

static_assert(std::endian::native == std::endian::little, "headers travel as they lie in memory, little endian");

inline constexpr std::uint16_t kNoMessage = 0;  // only the acknowledgement
inline constexpr std::uint16_t kEnd = 0xFFFF;   // the sender has closed its channel: nothing follows on this lane
inline constexpr std::uint32_t kMostChunkBytes = 1 << 20;
// Only a message's last chunk may be shorter. This bounds the chunks that a receiver has to remember of a message.
inline constexpr std::uint32_t kLeastChunkBytes = 4 << 10;

struct ChunkHeader {  // 64 bytes on the wire, little endian, in this order
  MessageHeader message;
  std::uint64_t number = 0;  // of the message, counted per peer from 0
  std::uint64_t offset = 0;  // of the chunk's first byte in the message
  std::uint32_t bytes = 0;   // number of bytes that follow
  std::uint32_t acked = 0;   // chunks received whole on this connection in the other direction, modulo 2^32
};
static_assert(sizeof(ChunkHeader) == 64);

inline bool hasMessage(const ChunkHeader& header) {
  return header.message.kind != kNoMessage && header.message.kind != kEnd;
}

// An error of kind Connection if no sender of this version writes such a header. Checks nothing else: the kinds of
// messages are their receivers' to check.
Error faultOf(const ChunkHeader& header);

}  // namespace fairring
