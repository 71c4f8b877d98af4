// Whether this rank fills its images through its processor's caches or past them (stream_copy.h). If the ranks of a
// machine run on one die, caches are faster; if on several, memory is. Processes move from core to core, and virtual
// cores from die to die. So the ranks measure what slices take by each way, and tell each other with every slice. They
// take streaming stores if these are faster by a tenth, summed over the ranks, and try the other way in one slice of
// 61: the same slice on all ranks. 61 is a prime, so that the slices of a program that repeats itself are tried in
// turn. For some slices, ranks may choose differently, which changes no bits. On the loop only.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>

#include "exchange/slice_id.h"

namespace fairring {

// The time that a rank copies and sums for a slice, in ns for each KiB of it, by the way that images were filled: about
// the median. 0: not known yet.
struct StoreCosts {
  float cached = 0;
  float streamed = 0;
};

class StoreChoice {
 public:
  static constexpr std::uint64_t kLeastBytes = 16 << 10;  // smaller slices are filled through caches

  bool streams(SliceId slice, std::uint64_t bytes) const;
  // The time that this rank took for such a slice.
  void took(bool streamed, std::uint64_t bytes, std::chrono::nanoseconds time);
  void heard(int peer, const StoreCosts& costs) { costs_[peer] = costs; }
  StoreCosts own() const { return {cached_.value, streamed_.value}; }

 private:
  // Each time moves it by a step, however far off it is. So a slice during which the core was taken away counts like
  // any other. Of the first times the least counts.
  struct Cost {
    float value = 0;
    int seen = 0;
    void follow(float time);
  };

  bool isStreamingFaster() const;

  Cost cached_;
  Cost streamed_;
  std::map<int, StoreCosts> costs_;  // of the peers
};

}  // namespace fairring
