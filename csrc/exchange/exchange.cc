#include "exchange/exchange.h"

#include <cstdint>

namespace fairring {

bool Exchange::needs(int peer) const {
  Watermarks all;
  for (const SliceQueue queue : kSliceQueues) all[queue] = UINT64_MAX;
  return needs(peer, all);
}

void Exchange::leave(int peer) {
  left_.insert(peer);
  failIfLeftPeersAreNeeded();
}

void Exchange::failIfLeftPeersAreNeeded() const {
  for (const int peer : left_) {
    if (needs(peer)) troubles_.left(peer);
  }
}

}  // namespace fairring
