#include "exchange/exchange.h"

#include <cstdint>

namespace fairring {

bool Exchange::needs(int peer) const {
  Watermarks all;
  for (const SliceQueue queue : kSliceQueues) all[queue] = UINT64_MAX;
  return needs(peer, all);
}

}  // namespace fairring
