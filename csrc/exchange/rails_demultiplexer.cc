#include "exchange/rails_demultiplexer.h"

namespace fairring {

RailsDemultiplexer::RailsDemultiplexer(Loop& loop, int rank, const Troubles& troubles)
    : host_(loop, rank, troubles), device_(loop, rank, troubles) {}

void RailsDemultiplexer::use(Channels& channels) {
  host_.use(channels);
  device_.use(channels);
}

std::set<int> RailsDemultiplexer::missing() const {
  std::set<int> peers = host_.missing();
  peers.merge(device_.missing());
  return peers;
}

bool RailsDemultiplexer::needs(int peer, const Watermarks& slicesBelow) const {
  return host_.needs(peer, slicesBelow.host) || device_.needs(peer, {slicesBelow.device, UINT64_MAX});
}

void RailsDemultiplexer::leave(int peer) {
  host_.leave(peer);
  if (!stopped_) device_.leave(peer);
}

void RailsDemultiplexer::stop() {
  stopped_ = true;
  host_.stop();
  device_.stop();
}

TrafficByLevel RailsDemultiplexer::traffic() const {
  TrafficByLevel sum = host_.traffic();
  for (const auto& [level, moved] : device_.traffic()) sum[level] += moved;
  return sum;
}

}  // namespace fairring
