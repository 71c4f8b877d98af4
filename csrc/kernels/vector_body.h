// The split of an array into elements that a device takes sixteen bytes at a time, and those one by one. Pure.
//
// All arrays of a reduction are processed in step, so vectors are possible only if all arrays begin at the same offset
// within sixteen bytes. Then the elements before the first boundary and those after the last are *loose*, processed one
// by one; otherwise all of them are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/reduce.h"

namespace fairring {

constexpr std::size_t kVectorBytes = 16;

struct VectorBody {
  std::uint64_t elements = 0;
  std::uint64_t head = 0;     // elements before the vectors
  std::uint64_t vectors = 0;  // after the head
  std::uint32_t perVector = 1;

  std::uint64_t loose() const { return elements - vectors * perVector; }
  // The place among all elements of the i-th loose one.
  std::uint64_t placeOfLoose(std::uint64_t i) const { return i < head ? i : i + vectors * perVector; }
};

// The arrays must begin at a multiple of the element's size.
VectorBody vectorBody(const void* out, std::span<const Input> inputs, std::uint64_t elements, std::size_t elementBytes);

}  // namespace fairring
