#include "engine/packing.h"

#include <algorithm>

#include "plan/grain.h"

namespace fairring {

Packing::Packing(const std::vector<Operand>& operands) {
  portions_.reserve(operands.size());
  std::size_t largest = 1;
  for (const Operand& operand : operands) {
    const std::size_t elementBytes = bytesOf(operand.reduction.dtype);
    largest = std::max(largest, elementBytes);
    const std::uint64_t begin = roundUp(bytes_, elementBytes);
    portions_.push_back({begin, operand.elements, static_cast<std::byte*>(operand.data), operand.reduction});
    bytes_ = portions_.back().end();
  }
  bytes_ = roundUp(bytes_, largest);  // what ranks receive stands side by side in staging: all of it begins aligned
}

std::vector<Portion> Packing::cut(const Range& bytes) const {
  std::vector<Portion> portions;
  for (Portion portion : within(portions_, bytes)) {
    portion.begin -= bytes.begin;
    portions.push_back(portion);
  }
  return portions;
}

}  // namespace fairring
