#include "exchange/arrivals.h"

namespace fairring {

RatesByPeer Arrivals::take() {
  RatesByPeer rates;
  for (auto& [peer, from] : peers_) {
    if (from.bytes() < kLeastBytes) continue;
    if (const std::uint64_t rate = from.take(); rate > 0) rates[peer] = rate;
  }
  return rates;
}

}  // namespace fairring
