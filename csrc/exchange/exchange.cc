#include "exchange/exchange.h"

#include <algorithm>

namespace fairring {

Error hasLeft(int rank, int peer) {
  return makeError(ErrorKind::PeerLeft, "rank ", peer,
                   " has left the group (it destroyed it or its program ended), but ", "rank ", rank,
                   " made a further call that needs it");
}

bool Exchange::needs(int peer) const {
  ByTrafficClass<std::uint64_t> all;
  for (const TrafficClass trafficClass : kTrafficClasses) all[trafficClass] = UINT64_MAX;
  return needs(peer, all);
}

Reduction Slice::reductionOf(const Portion& portion, std::size_t step) const {
  const auto isReducing = [this](std::size_t i) { return reduces((*plan)[i].verb); };
  Reduction result = portion.reduction;
  for (std::size_t i = step + 1; i < plan->size(); ++i) {
    if (isReducing(i)) result.divisor = 1;
  }
  return result;
}

}  // namespace fairring
