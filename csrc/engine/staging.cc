#include "engine/staging.h"

#include <algorithm>
#include <cassert>

namespace fairring {

std::optional<std::uint64_t> StagingRing::take(std::uint64_t slice, std::uint64_t bytes, std::uint64_t of) {
  assert(rounded(bytes) <= of && of <= bytes_);
  assert(taken_.empty() || taken_.back().slice < slice);
  const std::uint64_t begin = !taken_.empty() && next_ + rounded(bytes) <= of ? next_ : 0;
  const std::uint64_t end = begin + rounded(bytes);
  if (!isFree(begin, end)) return std::nullopt;
  next_ = end;
  taken_.push_back({slice, begin, end, false});
  return begin;
}

// What is taken lies between the oldest piece's begin and the newest piece's end, around the ring's end perhaps.
bool StagingRing::isFree(std::uint64_t begin, std::uint64_t end) const {
  return std::ranges::none_of(taken_, [&](const Taken& taken) { return taken.begin < end && begin < taken.end; });
}

void StagingRing::release(std::uint64_t slice) {
  const auto taken = std::ranges::find(taken_, slice, &Taken::slice);
  assert(taken != taken_.end() && !taken->released);
  taken->released = true;
  while (!taken_.empty() && taken_.front().released) taken_.pop_front();
}

}  // namespace fairring
