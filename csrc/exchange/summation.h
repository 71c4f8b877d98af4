// Sums (and copies) too long for one turn of the loop, done piece by piece. The holder of the loop's role runs them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/loop.h"
#include "kernels/reduce.h"

namespace fairring {

struct Sum {  // out = the inputs, reduced; one input and nothing to scale: a copy
  std::byte* out;
  std::vector<Input> inputs;
  std::uint64_t elements;
  bool partial = false;  // another sum goes on with it: not divided yet
};

// Puts the sums on the loop as one job of this owner; `done` follows the last piece.
void sumInPieces(Loop& loop, const void* owner, std::uint64_t urgency, const Reduction& reduction,
                 std::vector<Sum> sums, std::function<void()> done);

}  // namespace fairring
