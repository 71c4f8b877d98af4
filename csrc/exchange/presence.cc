#include "exchange/presence.h"

#include <algorithm>

namespace fairring {

namespace {

// Where the key, which is among these, stands from there on. In steps that grow: it is near where many rows are there,
// and the walk takes few where few are.
std::uint64_t placeOf(std::uint64_t key, std::span<const std::uint64_t> keys, std::uint64_t from) {
  std::uint64_t step = 1;
  while (from + step < keys.size() && keys[from + step] <= key) {
    from += step;
    step *= 2;
  }
  const auto some = keys.subspan(from, std::min(step, keys.size() - from));
  return from + static_cast<std::uint64_t>(std::ranges::lower_bound(some, key) - some.begin());
}

}  // namespace

Presence::Presence(std::span<const std::uint64_t> keys, std::span<const std::uint64_t> call, std::uint64_t rowBytes) {
  std::uint64_t row = 0;
  std::uint64_t packed = 0;
  for (const std::uint64_t key : keys) {
    if (call[row] != key) row = placeOf(key, call, row);
    const std::uint64_t begin = row++ * rowBytes;
    if (runs_.empty() || runs_.back().end != begin) runs_.push_back({begin, begin, packed});
    runs_.back().end += rowBytes;
    packed += rowBytes;
  }
}

std::size_t Presence::firstBehind(std::uint64_t at) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(runs_, at, {}, &Run::end) - runs_.begin());
}

std::uint64_t Presence::before(std::uint64_t at) const {
  const std::size_t index = firstBehind(at);
  if (index < runs_.size()) {
    const Run& run = runs_[index];
    return run.packed + (at > run.begin ? at - run.begin : 0);
  }
  return runs_.empty() ? 0 : runs_.back().packed + (runs_.back().end - runs_.back().begin);
}

}  // namespace fairring
