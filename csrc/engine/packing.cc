#include "engine/packing.h"

#include <algorithm>
#include <array>

#include "plan/grain.h"

namespace fairring {

void Packing::Row::add(Portion portion) {
  const std::size_t elementBytes = bytesOf(portion.reduction.dtype);
  largestElement = std::max(largestElement, elementBytes);
  portion.begin = roundUp(bytes, elementBytes);
  portion.tensor = static_cast<std::uint32_t>(portions.size());
  bytes = portion.end();
  portions.push_back(portion);
}

Packing::Packing(const std::vector<Operand>& operands) : rows_(1) {
  rows_.front().portions.reserve(operands.size());
  for (const Operand& operand : operands) {
    auto* const data = static_cast<std::byte*>(operand.data);
    rows_.front().add({0, operand.elements, data, data, operand.reduction});
  }
  end();
}

Packing Packing::ofBlocks(const BlockRows& rows) {
  Packing packing(std::vector<Operand>{});
  packing.rows_.resize(rows.size());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (const Block& block : rows[row]) {
      packing.rows_[row].add({0, block.elements, static_cast<const std::byte*>(block.from),
                              static_cast<std::byte*>(block.to), block.reduction});
    }
  }
  packing.end();
  return packing;
}

Packing Packing::of(const Call& call) {
  return call.pattern == Pattern::AllReduce ? Packing(call.operands) : ofBlocks(call.blocks);
}

// What ranks receive stands side by side in staging: all of it begins aligned.
void Packing::end() {
  for (Row& row : rows_) {
    row.bytes = roundUp(row.bytes, row.largestElement);
    bytes_ = std::max(bytes_, row.bytes);
  }
}

std::vector<std::uint64_t> Packing::bytesOfRows(const Range& bytes) const {
  std::vector<std::uint64_t> sizes;
  sizes.reserve(rows_.size());
  for (const Row& row : rows_) sizes.push_back(std::clamp(row.bytes, bytes.begin, bytes.end) - bytes.begin);
  return sizes;
}

std::vector<Portion> Packing::cut(const Range& bytes) const {
  constexpr std::array rows{0};
  constexpr std::array<std::uint64_t, 1> places{0};
  return cut(bytes, rows, places);
}

std::vector<Portion> Packing::cut(const Range& bytes, std::span<const int> rows,
                                  std::span<const std::uint64_t> places) const {
  std::vector<Portion> portions;
  portions.reserve(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (Portion portion : within(rows_[static_cast<std::size_t>(rows[i])].portions, bytes)) {
      portion.begin = portion.begin - bytes.begin + places[i];
      portions.push_back(portion);
    }
  }
  return portions;
}

}  // namespace fairring
