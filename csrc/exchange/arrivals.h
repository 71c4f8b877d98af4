// How fast large messages come from each peer while some do: bytes by the time during which one was under way. Whether
// the peer was late, or had nothing for this rank, does not matter. Owner of the loop's progress only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace fairring {

using RatesByPeer = std::map<int, std::uint64_t>;  // bytes/s

class Arrivals {
 public:
  // Times are nanoseconds of one clock, which never goes back.
  void begin(int peer, std::int64_t now);  // a message's header has come
  void end(int peer, std::uint64_t bytes, std::int64_t now);

  // Since it was last asked, of peers of which enough came to tell.
  RatesByPeer take();

 private:
  static constexpr std::uint64_t kLeastBytes = 256 << 10;

  struct OfPeer {
    std::size_t underWay = 0;
    std::int64_t since = 0;  // where some are
    std::uint64_t bytes = 0;
    std::int64_t nanoseconds = 0;
  };

  std::map<int, OfPeer> peers_;
};

}  // namespace fairring
