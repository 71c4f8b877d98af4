#include "exchange/presence.h"

#include <algorithm>

namespace fairring {

Presence::Presence(std::span<const std::uint64_t> keys, std::span<const std::uint64_t> call, std::uint64_t rowBytes) {
  std::uint64_t row = 0;
  std::uint64_t packed = 0;
  for (const std::uint64_t key : keys) {
    if (call[row] != key) {
      const auto found = std::ranges::lower_bound(call.subspan(row), key);
      row = static_cast<std::uint64_t>(&*found - call.data());
    }
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
