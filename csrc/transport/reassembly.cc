#include "transport/reassembly.h"

#include <iterator>

namespace fairring {

Error Reassembly::begin(const ChunkHeader& header) {
  if (isWhole(header.number)) return {};
  if (header.number - next_ > kMostAhead) {
    return makeError(ErrorKind::Connection, "rank ", peer_, " sent part ", header.number, " while part ", next_,
                     " is missing");
  }
  if (!incoming_.contains(header.number)) {
    if (const Error error = open(header)) return error;
  }
  Incoming& incoming = incoming_.at(header.number);
  if (incoming.header != header.message || !fits(incoming, header)) {
    return makeError(ErrorKind::Connection, "rank ", peer_, " sent ", header.bytes, " bytes at ", header.offset,
                     " of a part of ", header.message.bytes, " that do not fit what came of it before");
  }
  incoming.chunks.try_emplace(header.offset, Range{header.bytes, false});
  return {};
}

// The first chunk of a message: the receiver is asked for the message's place.
Error Reassembly::open(const ChunkHeader& header) {
  std::byte* place = nullptr;
  if (header.message.bytes > 0) {
    place = receiver_.place(peer_, header.message);
    if (place == nullptr) {
      return makeError(ErrorKind::Connection, "refused a part of ", header.message.bytes, " bytes from rank ", peer_);
    }
  }
  incoming_[header.number] = {.header = header.message, .place = place, .missing = header.message.bytes, .chunks = {}};
  return {};
}

bool Reassembly::fits(const Incoming& incoming, const ChunkHeader& header) {
  const auto after = incoming.chunks.lower_bound(header.offset);
  if (after != incoming.chunks.end() && after->first == header.offset) return after->second.bytes == header.bytes;
  if (after != incoming.chunks.end() && header.offset + header.bytes > after->first) return false;
  if (after == incoming.chunks.begin()) return true;
  const auto before = std::prev(after);
  return before->first + before->second.bytes <= header.offset;
}

std::byte* Reassembly::place(const ChunkHeader& header) const {
  const auto incoming = incoming_.find(header.number);
  if (incoming == incoming_.end()) return nullptr;
  const auto chunk = incoming->second.chunks.find(header.offset);
  if (chunk == incoming->second.chunks.end() || chunk->second.here) return nullptr;
  return incoming->second.place + header.offset;
}

void Reassembly::complete(const ChunkHeader& header) {
  const auto incoming = incoming_.find(header.number);
  if (incoming == incoming_.end()) return;
  Range& chunk = incoming->second.chunks.at(header.offset);
  if (chunk.here) return;
  chunk.here = true;
  incoming->second.missing -= chunk.bytes;
  if (incoming->second.missing > 0) return;
  incoming_.erase(incoming);
  whole_.insert(header.number);
  while (!whole_.empty() && *whole_.begin() == next_) {
    whole_.erase(whole_.begin());
    ++next_;
  }
  receiver_.arrived(peer_, header.message);
}

}  // namespace fairring
