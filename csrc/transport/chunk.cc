#include "transport/chunk.h"

namespace fairring {

Error faultOf(const ChunkHeader& header) {
  const PartHeader& part = header.part;
  const auto fault = [&](const char* what) {
    return makeError(ErrorKind::Connection, what, " (kind ", static_cast<unsigned>(part.kind), ", chunk of ",
                     header.bytes, " bytes at ", header.offset, " of a part of ", part.bytes, ")");
  };
  if (!isKnown(part.kind) && hasPart(header)) return fault("a header that is not of this version");
  if (!hasPart(header)) {
    const ChunkHeader bare{.part = {.kind = part.kind}, .acked = header.acked};
    const bool isBare = part == bare.part && header.number == 0 && header.offset == 0 && header.bytes == 0;
    return isBare ? Error() : fault("an acknowledgement with a part in it");
  }
  if (header.offset > part.bytes || header.bytes > part.bytes - header.offset) return fault("a chunk beyond its part");
  if (header.bytes > kMostChunkBytes) return fault("a chunk that is too large");
  const bool isLast = header.bytes == part.bytes - header.offset;
  if (header.bytes < kLeastChunkBytes && !isLast) return fault("a chunk that is too small");
  if (header.bytes == 0 && part.bytes > 0) return fault("an empty chunk");
  return {};
}

}  // namespace fairring
