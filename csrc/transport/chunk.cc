#include "transport/chunk.h"

namespace fairring {

Error faultOf(const ChunkHeader& header) {
  const MessageHeader& message = header.message;
  const auto fault = [&](const char* what) {
    return makeError(ErrorKind::Connection, what, " (kind ", message.kind, ", chunk of ", header.bytes, " bytes at ",
                     header.offset, " of a part of ", message.bytes, ")");
  };
  if (!hasMessage(header)) {
    const ChunkHeader bare{.message = {.kind = message.kind}, .acked = header.acked};
    const bool isBare = message == bare.message && header.number == 0 && header.offset == 0 && header.bytes == 0;
    return isBare ? Error() : fault("an acknowledgement with a part in it");
  }
  if (header.offset > message.bytes || header.bytes > message.bytes - header.offset)
    return fault("a chunk beyond its part");
  if (header.bytes > kMostChunkBytes) return fault("a chunk that is too large");
  const bool isLast = header.bytes == message.bytes - header.offset;
  if (header.bytes < kLeastChunkBytes && !isLast) return fault("a chunk that is too small");
  if (header.bytes == 0 && message.bytes > 0) return fault("an empty chunk");
  return {};
}

}  // namespace fairring
