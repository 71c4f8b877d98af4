// The receiving half of a lane: says where to put the next bytes of the connection, and interprets them once they are
// there. Small chunks and their headers come through a buffer of its own, the rest of a larger chunk goes straight to
// its place. No sockets: any source of bytes can feed it.
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

  // Room for the next bytes, in this order; never empty. Valid until bytes have come over any lane of the peer.
  std::array<iovec, 2> room();
  // That many bytes have come there. An error if they are not allowed: the lane is of no use any more.
  Error filled(std::size_t bytes);

  std::uint32_t chunks() const { return chunks_; }  // received whole, modulo 2^32
  std::uint32_t acked() const { return acked_; }    // as the peer acknowledges the other direction
  bool hasEnded() const { return ended_; }          // the peer has closed its channel
  // Whether a chunk has come since the last call whose sender waits for the acknowledgement.
  bool takeUrgent() { return std::exchange(urgent_, false); }

 private:
  static constexpr std::size_t kBuffer = 8 << 10;
  static constexpr std::size_t kScratch = 64 << 10;

  Error onHeader();
  void chunkCame(std::size_t bytes);

  Reassembly& reassembly_;
  std::array<std::byte, kBuffer> buffer_;
  std::size_t begin_ = 0;  // of the bytes in the buffer that are not parsed yet
  std::size_t end_ = 0;
  ChunkHeader header_;
  bool inChunk_ = false;
  std::uint32_t here_ = 0;          // bytes of the chunk that have come
  std::vector<std::byte> scratch_;  // for chunks that are here already
  std::uint32_t chunks_ = 0;
  std::uint32_t acked_ = 0;
  bool ended_ = false;
  bool urgent_ = false;
};

}  // namespace fairring
