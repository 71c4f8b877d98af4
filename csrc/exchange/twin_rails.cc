#include "exchange/twin_rails.h"

namespace fairring {

TwinRails::TwinRails(Loop& loop, int rank, const Troubles& troubles)
    : host_(loop, rank, troubles), device_(loop, rank, troubles) {}

void TwinRails::use(Channels& channels) {
  host_.use(channels);
  device_.use(channels);
}

std::set<int> TwinRails::missing() const {
  std::set<int> peers = host_.missing();
  peers.merge(device_.missing());
  return peers;
}

bool TwinRails::needs(int peer, const SliceCounts& slicesBelow) const {
  return host_.needs(peer, slicesBelow.host) || device_.needs(peer, {slicesBelow.device, UINT64_MAX});
}

void TwinRails::leave(int peer) {
  host_.leave(peer);
  if (!stopped_) device_.leave(peer);
}

void TwinRails::stop() {
  stopped_ = true;
  host_.stop();
  device_.stop();
}

TrafficByLevel TwinRails::traffic() const {
  TrafficByLevel sum = host_.traffic();
  for (const auto& [level, moved] : device_.traffic()) sum[level] += moved;
  return sum;
}

}  // namespace fairring
