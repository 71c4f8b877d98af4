// Sums (and copies), done piece by piece where they are too long for one turn of the loop, at once where they are
// short. The holder of the loop's role runs them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/loop.h"
#include "kernels/reduce.h"

namespace fairring {

// Bytes read in one piece: some tens of microseconds, so that a message never waits longer than that.
constexpr std::uint64_t kPieceBytes = 512 << 10;

struct Sum {  // out = the inputs, reduced; one input and nothing to scale: a copy
  Reduction reduction;
  std::byte* out;
  std::vector<Input> inputs;
  std::uint64_t elements;
  bool partial = false;  // another sum goes on with it: not divided yet
};

// Puts the sums on the loop as one job of this owner; `done` follows the last piece. Of less than a few microseconds
// all of it, `done` included, is over when this returns: a job would take longer than its work.
void sumInPieces(Loop& loop, const void* owner, std::uint64_t urgency, std::vector<Sum> sums,
                 std::function<void()> done);

// Likewise any such work, cut already: each piece is some tens of microseconds.
using Pieces = std::vector<std::function<void()>>;
void runInPieces(Loop& loop, const void* owner, std::uint64_t urgency, Pieces pieces, std::function<void()> done);

}  // namespace fairring
