#include "exchange/portion.h"

#include <algorithm>

namespace fairring {

Portion clipped(Portion portion, const Range& bytes) {
  const std::size_t elementBytes = bytesOf(portion.reduction.dtype);
  const std::uint64_t end = std::min(portion.end(), bytes.end);
  const std::uint64_t skipped = std::max(portion.begin, bytes.begin) - portion.begin;
  portion.begin += skipped;
  if (portion.from != nullptr) portion.from += skipped;
  if (portion.to != nullptr) portion.to += skipped;
  portion.elements = (end - portion.begin) / elementBytes;
  return portion;
}

std::vector<Portion> joinedWithin(std::span<const Portion> portions, const Range& bytes) {
  std::vector<Portion> joined;
  for (Portion portion : within(portions, bytes)) {
    portion.from = nullptr;
    portion.to = nullptr;
    if (!joined.empty() && joined.back().end() == portion.begin && joined.back().reduction == portion.reduction) {
      joined.back().elements += portion.elements;
    } else {
      joined.push_back(portion);
    }
  }
  return joined;
}

}  // namespace fairring
