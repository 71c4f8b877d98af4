// The traffic of a rank at each level since its group was made, for benchmarks and tests. The exchanges count it where
// they move it, one entry per message that carries data. Between machines one send may carry several messages, of any
// slices. Owner of the loop's progress only.
#pragma once

#include <cstdint>
#include <map>

namespace fairring {

// The sums that have crossed in a format of their own: the magnitudes of a sample of their elements, and those of what
// rounding took from these.
struct Rounding {
  double magnitude = 0;
  double lost = 0;
};

struct Traffic {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t sends = 0;
  Rounding rounding;

  void add(std::uint64_t messageBytes) {
    ++messages;
    bytes += messageBytes;
  }
  Traffic& operator+=(const Traffic& other) {
    messages += other.messages;
    bytes += other.bytes;
    sends += other.sends;
    rounding.magnitude += other.rounding.magnitude;
    rounding.lost += other.rounding.lost;
    return *this;
  }
};

using TrafficByLevel = std::map<int, Traffic>;

}  // namespace fairring
