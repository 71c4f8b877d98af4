#include "exchange/exchange.h"

#include <cstdint>

namespace fairring {

Error hasLeft(int rank, int peer) {
  return makeError(ErrorKind::PeerLeft, "rank ", peer,
                   " has left the group (it destroyed it or its program ended), but ", "rank ", rank,
                   " made a further call that needs it");
}

bool Exchange::needs(int peer) const {
  Watermarks all;
  for (const SliceQueue queue : kSliceQueues) all[queue] = UINT64_MAX;
  return needs(peer, all);
}

}  // namespace fairring
