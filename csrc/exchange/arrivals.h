// How fast large messages come from each peer while some do. Whether the peer was late, or had nothing for this rank,
// does not matter. Owner of the loop's progress only.
#pragma once

#include <cstdint>
#include <map>

#include "exchange/throughput.h"

namespace fairring {

using RatesByPeer = std::map<int, std::uint64_t>;  // bytes/s

class Arrivals {
 public:
  // Times as Throughput has them.
  void begin(int peer, std::int64_t now) { peers_[peer].begin(now); }  // a message's header has come
  void end(int peer, std::uint64_t bytes, std::int64_t now) { peers_[peer].end(bytes, now); }

  // Since it was last asked, of peers of which enough came to tell.
  RatesByPeer take();

 private:
  static constexpr std::uint64_t kLeastBytes = 256 << 10;

  std::map<int, Throughput> peers_;
};

}  // namespace fairring
