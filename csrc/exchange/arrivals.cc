#include "exchange/arrivals.h"

#include <algorithm>
#include <utility>

namespace fairring {

void Arrivals::begin(int peer, std::int64_t now) {
  OfPeer& from = peers_[peer];
  if (from.underWay++ == 0) from.since = now;
}

void Arrivals::end(int peer, std::uint64_t bytes, std::int64_t now) {
  OfPeer& from = peers_[peer];
  --from.underWay;
  from.nanoseconds += now - std::exchange(from.since, now);
  from.bytes += bytes;
}

RatesByPeer Arrivals::take() {
  RatesByPeer rates;
  for (auto& [peer, from] : peers_) {
    if (from.bytes < kLeastBytes) continue;
    const auto nanoseconds = static_cast<double>(std::max<std::int64_t>(from.nanoseconds, 1));
    rates[peer] = static_cast<std::uint64_t>(static_cast<double>(from.bytes) * 1e9 / nanoseconds);
    from.bytes = 0;
    from.nanoseconds = 0;
  }
  return rates;
}

}  // namespace fairring
