#include "exchange/store_choice.h"

#include <algorithm>

namespace fairring {

namespace {

constexpr std::uint64_t kTriedEvery = 61;  // slices
constexpr int kFirst = 12;                 // times
constexpr float kStep = 1.02F;
// The other way has to be faster by more than noise.
constexpr float kGain = 0.9F;

}  // namespace

void StoreChoice::Cost::follow(float time) {
  if (seen < kFirst) {
    value = seen == 0 ? time : std::min(value, time);
    ++seen;
  } else {
    value = time > value ? value * kStep : value / kStep;
  }
}

bool StoreChoice::streams(SliceId slice, std::uint64_t bytes) const {
  if (bytes < kLeastBytes) return false;
  const bool isTried = slice.sequence % kTriedEvery == kTriedEvery - 1;
  return isStreamingFaster() != isTried;
}

bool StoreChoice::isStreamingFaster() const {
  StoreCosts sum = own();
  bool isKnown = sum.cached > 0 && sum.streamed > 0;
  for (const auto& [peer, costs] : costs_) {
    isKnown = isKnown && costs.cached > 0 && costs.streamed > 0;
    sum.cached += costs.cached;
    sum.streamed += costs.streamed;
  }
  return isKnown && sum.streamed < kGain * sum.cached;
}

void StoreChoice::took(bool streamed, std::uint64_t bytes, std::chrono::nanoseconds time) {
  constexpr float kKiB = 1024;
  (streamed ? streamed_ : cached_).follow(static_cast<float>(time.count()) / (static_cast<float>(bytes) / kKiB));
}

}  // namespace fairring
