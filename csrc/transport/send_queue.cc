#include "transport/send_queue.h"

#include <algorithm>
#include <cassert>

namespace fairring {

void SendQueue::put(std::span<const Message> messages, Channel::Released released) {
  const auto batch = std::make_shared<Batch>();
  for (const Message& message : messages) {
    const auto outgoing = std::make_shared<Outgoing>();
    outgoing->header = message.header;
    outgoing->number = nextNumber_++;
    outgoing->data = message.data;
    bytes_ += message.header.bytes;
    if (message.header.bytes <= kCopiedBytes) {
      outgoing->copy = spare_->copyOf({message.data, message.header.bytes});
      outgoing->data = outgoing->copy.data();
    } else {
      outgoing->batch = batch;
      ++batch->messages;
    }
    Outgoings& larger = message.trafficClass == TrafficClass::Express ? express_ : bulk_;
    (message.header.bytes <= kSmallBytes ? small_ : larger).push_back(outgoing);
  }
  if (batch->messages > 0) {
    batch->released = std::move(released);
  } else if (released) {
    released_.push_back(std::move(released));
  }
}

// The queue that the next new chunk is taken from.
SendQueue::Outgoings SendQueue::* SendQueue::next() const {
  if (!bulk_.empty() && ahead_ >= kMostAhead) return &SendQueue::bulk_;
  if (!small_.empty()) return &SendQueue::small_;
  return express_.empty() ? &SendQueue::bulk_ : &SendQueue::express_;
}

std::uint32_t SendQueue::nextBytes(std::uint32_t most) const {
  if (!again_.empty()) return again_.front().header.bytes;
  const Outgoing& message = *(this->*next()).front();
  if (message.header.bytes <= kSmallBytes) return static_cast<std::uint32_t>(message.header.bytes);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(most, message.header.bytes - message.cut));
}

SendQueue::Chunk SendQueue::take(std::uint32_t most) {
  assert(!empty() && most >= kLeastChunkBytes && most <= kMostChunkBytes);
  const std::uint32_t bytes = nextBytes(most);
  bytes_ -= bytes;
  if (!again_.empty()) {
    Chunk chunk = std::move(again_.front());
    again_.pop_front();
    return chunk;
  }
  Outgoings& queue = this->*next();
  ahead_ = &queue == &bulk_ || bulk_.empty() ? 0 : ahead_ + bytes;
  const std::shared_ptr<Outgoing> message = queue.front();
  Chunk chunk{.header = {.message = message->header, .number = message->number, .offset = message->cut, .bytes = bytes},
              .data = message->data + message->cut,
              .of = message};
  message->cut += bytes;
  if (message->cut == message->header.bytes) queue.pop_front();
  return chunk;
}

void SendQueue::takeBack(const std::deque<Chunk>& chunks) {
  again_.insert(again_.begin(), chunks.begin(), chunks.end());
  for (const Chunk& chunk : chunks) bytes_ += chunk.header.bytes;
}

void SendQueue::acknowledged(const Chunk& chunk) {
  Outgoing& message = *chunk.of;
  message.acknowledged += chunk.header.bytes;
  if (message.acknowledged < message.header.bytes) return;
  if (!message.batch) return spare_->keep(std::move(message.copy));
  Batch& batch = *message.batch;
  if (--batch.messages == 0 && batch.released) released_.push_back(std::move(batch.released));
}

void SendQueue::clear() {
  again_.clear();
  small_.clear();
  express_.clear();
  bulk_.clear();
  released_.clear();
  bytes_ = 0;
}

}  // namespace fairring
