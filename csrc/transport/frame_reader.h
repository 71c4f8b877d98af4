// The receiving half of a lane: says where the next bytes of the connection go, and makes sense of them once they are
// there. Small chunks come with their headers through a buffer of its own, the rest of a larger one goes straight to
// its place. No sockets: whoever has bytes can feed it.
// One per connection. On the loop only.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <vector>

#include "transport/reassembly.h"

namespace fairring {

class FrameReader {
 public:
  explicit FrameReader(Reassembly& reassembly) : reassembly_(reassembly) {}

  // Room for the next bytes, in this order; never none. Valid until bytes have come over any lane of the peer.
  std::array<iovec, 2> room();
  // So many bytes have come there. An error where they are not what may come: the lane is of no use any more.
  Error filled(std::size_t bytes);

  std::uint32_t chunks() const { return chunks_; }  // that have come whole, modulo 2^32
  std::uint32_t acked() const { return acked_; }    // what the peer says of the other direction
  bool hasEnded() const { return ended_; }          // the peer has closed its channel
  // A chunk that its sender waits for to be acknowledged has come since this was last asked.
  bool takeUrgent() { return std::exchange(urgent_, false); }

 private:
  static constexpr std::size_t kBuffer = 8 << 10;
  static constexpr std::size_t kScratch = 64 << 10;

  Error onHeader();
  void chunkCame(std::size_t bytes);

  Reassembly& reassembly_;
  std::array<std::byte, kBuffer> buffer_;
  std::size_t begin_ = 0;  // of what has come into the buffer and was not looked at
  std::size_t end_ = 0;
  ChunkHeader header_;
  bool inChunk_ = false;
  std::uint32_t here_ = 0;          // bytes of the chunk that have come
  std::vector<std::byte> scratch_;  // for what is here already
  std::uint32_t chunks_ = 0;
  std::uint32_t acked_ = 0;
  bool ended_ = false;
  bool urgent_ = false;
};

}  // namespace fairring
