// The tensors of a call as one row of bytes, which is cut into slices as a single tensor would be: small ones share a
// slice, large ones take several. Which tensors share one follows from the call alone, so it is the same on all ranks.
// Immutable; any thread.
#pragma once

#include <vector>

#include "engine/call.h"
#include "exchange/portion.h"

namespace fairring {

class Packing {
 public:
  explicit Packing(const std::vector<Operand>& operands);

  std::uint64_t bytes() const { return bytes_; }  // a multiple of the largest element
  // Of a slice that is cut from there, on multiples of 64 bytes.
  std::vector<Portion> cut(const Range& bytes) const;

 private:
  std::vector<Portion> portions_;  // of the whole row
  std::uint64_t bytes_ = 0;
};

}  // namespace fairring
