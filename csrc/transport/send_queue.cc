#include "transport/send_queue.h"

#include <algorithm>
#include <cassert>

#include "transport/order.h"

namespace fairring {

void SendQueue::put(std::span<const Part> parts, Channels::Released released) {
  const auto message = std::make_shared<Message>();
  for (const Part& part : parts) {
    const auto outgoing = std::make_shared<Outgoing>();
    outgoing->header = part.header;
    outgoing->number = nextNumber_++;
    outgoing->data = part.data;
    bytes_ += part.header.bytes;
    if (part.header.bytes <= kCopiedBytes) {
      outgoing->copy = copyOf(part);
      outgoing->data = outgoing->copy.data();
    } else {
      outgoing->message = message;
      ++message->parts;
    }
    Parts& larger = orderOf(part.header.slice) == Order::Express ? express_ : bulk_;
    (part.header.bytes <= kSmallBytes ? small_ : larger).push_back(outgoing);
  }
  if (message->parts > 0) {
    message->released = std::move(released);
  } else if (released) {
    released_.push_back(std::move(released));
  }
}

std::vector<std::byte> SendQueue::copyOf(const Part& part) {
  std::vector<std::byte> copy;
  if (part.header.bytes == 0) return copy;
  if (part.header.bytes <= kSpareBytes && !spare_.empty()) {
    copy = std::move(spare_.back());
    spare_.pop_back();
  }
  copy.assign(part.data, part.data + part.header.bytes);
  return copy;
}

void SendQueue::keep(std::vector<std::byte>&& copy) {
  if (spare_.size() < kMostSpare && copy.capacity() > 0 && copy.capacity() <= kSpareBytes) {
    spare_.push_back(std::move(copy));
  }
}

// Of the queues that a new chunk can come from.
SendQueue::Parts SendQueue::* SendQueue::next() const {
  if (!bulk_.empty() && ahead_ >= kMostAhead) return &SendQueue::bulk_;
  if (!small_.empty()) return &SendQueue::small_;
  return express_.empty() ? &SendQueue::bulk_ : &SendQueue::express_;
}

std::uint32_t SendQueue::nextBytes(std::uint32_t most) const {
  if (!again_.empty()) return again_.front().header.bytes;
  const Outgoing& part = *(this->*next()).front();
  if (part.header.bytes <= kSmallBytes) return static_cast<std::uint32_t>(part.header.bytes);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(most, part.header.bytes - part.cut));
}

SendQueue::Chunk SendQueue::take(std::uint32_t most) {
  assert(!empty() && most >= kLeastChunkBytes && most <= kMostChunkBytes);
  const std::uint32_t bytes = nextBytes(most);
  bytes_ -= bytes;
  ++withLanes_;
  if (!again_.empty()) {
    Chunk chunk = std::move(again_.front());
    again_.pop_front();
    return chunk;
  }
  Parts& queue = this->*next();
  ahead_ = &queue == &bulk_ || bulk_.empty() ? 0 : ahead_ + bytes;
  const std::shared_ptr<Outgoing> part = queue.front();
  Chunk chunk{.header = {.part = part->header, .number = part->number, .offset = part->cut, .bytes = bytes},
              .data = part->data + part->cut,
              .of = part};
  part->cut += bytes;
  if (part->cut == part->header.bytes) queue.pop_front();
  return chunk;
}

void SendQueue::takeBack(const std::deque<Chunk>& chunks) {
  again_.insert(again_.begin(), chunks.begin(), chunks.end());
  withLanes_ -= chunks.size();
  for (const Chunk& chunk : chunks) bytes_ += chunk.header.bytes;
}

void SendQueue::acknowledged(const Chunk& chunk) {
  --withLanes_;
  Outgoing& part = *chunk.of;
  part.acknowledged += chunk.header.bytes;
  if (part.acknowledged < part.header.bytes) return;
  if (!part.message) return keep(std::move(part.copy));
  Message& message = *part.message;
  if (--message.parts == 0 && message.released) released_.push_back(std::move(message.released));
}

}  // namespace fairring
