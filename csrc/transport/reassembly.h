// The messages from one peer, reassembled from chunks that arrive over any lane and in any order. It asks the receiver
// for the place of each message once, and tells it once when the message is whole. Chunks that come twice, because a
// lane broke before their acknowledgement arrived, are recognised and change nothing. Owned by the peer's channel. On
// the loop only.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "transport/chunk.h"

namespace fairring {

class Reassembly {
 public:
  // No honest sender's messages are further ahead of the oldest incomplete one than this.
  static constexpr std::uint64_t kMostAhead = 1 << 16;

  Reassembly(int peer, MessageReceiver& receiver) : peer_(peer), receiver_(receiver) {}

  // A chunk begins. An error if no such chunk can be expected, or if the receiver has no place for its message.
  Error begin(const ChunkHeader& header);
  // The place of the chunk's first byte; null if the chunk is here already: its bytes are thrown away. To be asked
  // again before every write, because another lane may complete the chunk, and with it the message, at any time.
  std::byte* place(const ChunkHeader& header) const;
  // All bytes of a chunk that began have come.
  void complete(const ChunkHeader& header);

 private:
  struct Range {
    std::uint32_t bytes;
    bool here;
  };
  struct Incoming {
    MessageHeader header;
    std::byte* place = nullptr;
    std::uint64_t missing = 0;              // bytes
    std::map<std::uint64_t, Range> chunks;  // by offset
  };

  bool isWhole(std::uint64_t number) const { return number < next_ || whole_.contains(number); }
  Error open(const ChunkHeader& header);
  static bool fits(const Incoming& incoming, const ChunkHeader& header);

  const int peer_;
  MessageReceiver& receiver_;
  std::uint64_t next_ = 0;         // all messages below are whole
  std::set<std::uint64_t> whole_;  // the whole ones above
  std::map<std::uint64_t, Incoming> incoming_;
};

}  // namespace fairring
