// A collective call as the group sees it: what must be equal on all ranks, and, for a call of ours, contiguous tensors.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "engine/arrival.h"
#include "kernels/reduce.h"
#include "plan/plan.h"

namespace fairring {

class CallInParts;
struct SiteFormat;

// The part of a call that must be equal on all ranks. Shape, strides, async, timeout and factors may differ.
struct Signature {
  Text text;                 // for people: "all_reduce SUM of 1024 Float32"; long ones are cut when they are shown
  std::uint64_t digest = 0;  // of all that must be equal; 0: the text says all of it
};

// A call as this rank has made it. Times are nanoseconds of the loop's clock; 0: it has not happened.
struct CallRecord {
  std::uint64_t number = 0;  // 1, 2, ...: the same on all ranks; 0: no call yet
  std::uint64_t hash = 0;    // of this call and all before it
  Text text;
  std::int64_t made = 0;   // by its caller
  std::int64_t begun = 0;  // the loop has it; never where the call is made of messages
  std::int64_t ended = 0;
  bool failed = false;
};

struct Operand {         // of an all-reduce, in place
  void* data = nullptr;  // stays valid until the call is done; null: refused
  std::uint64_t elements = 0;
  Reduction reduction;  // once for the whole call
};

// The places of one block: where this rank reads it, and where it writes the result. Both stay valid until the call is
// done. Null: this rank does not, for the block is another rank's, or is refused.
struct Block {
  const void* from = nullptr;
  void* to = nullptr;
  std::uint64_t elements = 0;
  Reduction reduction;  // once for the whole call; where bytes are moved alone, what has elements of that size
};

// A row of blocks, one of each tensor, or such a row for each rank, as the pattern has it. The same sizes on all ranks.
using BlockRows = std::vector<std::vector<Block>>;

struct Call {
  Pattern pattern = Pattern::AllReduce;
  int root = -1;                       // where the pattern has one
  std::vector<Operand> operands = {};  // of an all-reduce
  BlockRows blocks = {};               // of all others
  // Instead of both: a call that is made of others.
  std::shared_ptr<CallInParts> parts = {};
  // The arrival of what this rank reads; null: it is there.
  std::shared_ptr<Arrival> inputs = {};
  double scale = 1.0;  // of this rank's floats, before they are reduced; differs between ranks
  // The format in which the sum of a single Float32 operand crosses between sites; null: as it is.
  const SiteFormat* siteFormat = nullptr;
  // Error feedback of this format: what rounding takes from each element is kept here and added in the next call with
  // the same residual.
  float* residual = nullptr;
  std::chrono::milliseconds timeout{0};  // 0: none
  std::uint64_t number = 0;              // in the group's calls; 0: not counted there
  Signature signature = {};
  // Why this rank can't take part with all of its operands: the call is made all the same, with what is in their place
  // in staging, so that the peers learn of it and all other calls go on. Of kind Refused.
  Error refused = {};
  std::function<void(const Error&)> done = {};  // on the loop, once; must not block
};

}  // namespace fairring
