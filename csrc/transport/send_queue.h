// The messages that one rank has to send to one peer. They are cut into chunks when a lane has room for one, so each
// lane gets as much as it can carry. A chunk is kept until the peer has acknowledged it: if its lane breaks, another
// lane sends it again.
//
// The memory of a message is released when all of its chunks have been acknowledged. That takes a round trip, which is
// long compared with the time of a message that is not large: such a message is copied here, and its memory is released
// at once. Small messages go in one chunk, before the rest of larger ones, and their acknowledgement may be late.
// Larger messages of the express class go before those of bulk. But when kMostAhead bytes have gone before waiting
// bulk, a chunk of bulk is next: bulk may be slow, but it never stands still. Owned by the peer's channel. On the loop
// only.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transport/chunk.h"
#include "transport/spare_memory.h"

namespace fairring {

class SendQueue {
 public:
  static constexpr std::uint64_t kSmallBytes = 64 << 10;    // of a small message, at most
  static constexpr std::uint64_t kCopiedBytes = 512 << 10;  // of a copied message, at most
  static constexpr std::uint64_t kMostAhead = 1 << 20;      // that may overtake waiting bulk

  struct Outgoing;  // a message

  struct Chunk {
    ChunkHeader header;
    const std::byte* data = nullptr;
    std::shared_ptr<Outgoing> of;

    bool isSmall() const { return header.message.bytes <= kSmallBytes; }
  };

  explicit SendQueue(std::shared_ptr<SpareMemory> spare) : spare_(std::move(spare)) {}

  void put(std::span<const Message> messages, Channel::Released released);

  bool empty() const { return again_.empty() && small_.empty() && express_.empty() && bulk_.empty(); }
  std::uint64_t bytes() const { return bytes_; }  // that are on no lane yet
  // The size of the next chunk for a lane that wants at most that many bytes; not to be called if nothing is left.
  std::uint32_t nextBytes(std::uint32_t most) const;
  Chunk take(std::uint32_t most);
  // The lane that carried these chunks, in the order in which they were taken, has broken.
  void takeBack(const std::deque<Chunk>& chunks);
  void acknowledged(const Chunk& chunk);
  void clear();  // of all that would still go

  // The callbacks that became due since the last call. The caller has to call them.
  std::vector<Channel::Released> takeReleased() { return std::exchange(released_, {}); }

 private:
  struct Batch {
    std::size_t messages = 0;  // messages whose memory is still in use
    Channel::Released released;
  };

  using Outgoings = std::deque<std::shared_ptr<Outgoing>>;
  Outgoings SendQueue::* next() const;

  const std::shared_ptr<SpareMemory> spare_;
  std::uint64_t nextNumber_ = 0;
  std::deque<Chunk> again_;  // to be sent once more
  Outgoings small_;
  Outgoings express_;  // larger ones
  Outgoings bulk_;
  std::uint64_t ahead_ = 0;  // bytes that have gone before bulk since a chunk of it last went
  std::uint64_t bytes_ = 0;
  std::vector<Channel::Released> released_;
};

struct SendQueue::Outgoing {
  MessageHeader header;
  std::uint64_t number = 0;
  const std::byte* data = nullptr;
  std::vector<std::byte> copy;  // if the message is copied
  std::uint64_t cut = 0;        // bytes that have become chunks
  std::uint64_t acknowledged = 0;
  std::shared_ptr<Batch> batch;  // none if it was copied
};

}  // namespace fairring
