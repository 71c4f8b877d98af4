// A collective call as the group sees it: what must be equal on all ranks, and, for a call of ours, contiguous tensors.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "kernels/reduce.h"

namespace fairring {

// What must be equal on all ranks of a call. Not in it: what may differ (shape, strides, async, timeout, factors).
struct Signature {
  Text text;                 // for people: "all_reduce SUM of 1024 Float32"; long ones are cut when they are shown
  std::uint64_t digest = 0;  // of all that must be equal; 0: the text says all of it
};

struct Operand {         // of an all-reduce, in place
  void* data = nullptr;  // stays valid until the call is done; null: refused
  std::uint64_t elements = 0;
  Reduction reduction;  // once for the whole call
};

// One rank's block of a reduce-scatter or an all-gather: where this rank reads it, and where it writes the result. Each
// stays valid until the call is done. Null: it does not, for it is not its own, or is refused.
struct Block {
  const void* from = nullptr;
  void* to = nullptr;
  std::uint64_t elements = 0;
  Reduction reduction;  // once for the whole call; of an all-gather, which moves bytes, what has elements of that size
};

enum class Half { ReduceScatter, AllGather };  // of an all-reduce

struct BlocksOperand {
  Half half;
  std::vector<std::vector<Block>> byRank;  // each rank's blocks, one of each tensor; the same sizes on all ranks
};

// Some rows of a large tensor; what is not there counts as zeros, but what nobody has stays away.
struct SparseOperand {
  std::span<const std::uint64_t> keys;  // of the rows that this rank has; they ascend, and stay until the call is done
  std::uint64_t keysBelow = 0;          // the tensor's rows; the same on all ranks, as all below
  const std::byte* values = nullptr;    // the rows, packed; they stay valid until the call is done
  std::uint64_t rowElements = 0;
  Reduction reduction;
  // On the loop: memory for the sums of these rows, valid until the call is done. None where this rank refused.
  std::function<std::byte*(const std::vector<std::uint64_t>& keys)> result;

  std::uint64_t rowBytes() const { return rowElements * bytesOf(reduction.dtype); }
};

struct Call {
  std::vector<Operand> operands;
  std::optional<SparseOperand> sparse = std::nullopt;  // instead of operands, as the next
  std::optional<BlocksOperand> blocks = std::nullopt;
  double scale = 1.0;  // of this rank's floats, before they are reduced; differs between ranks
  // Of a single operand of Float32 that is summed: it isCompressed between sites as bf16, and what rounding takes of
  // its elements is kept here, one for one, and added in the next call that is given the same. Null: it isCompressed as
  // it is.
  float* residual = nullptr;
  std::chrono::milliseconds timeout{0};  // 0: none
  Signature signature;
  // Why this rank can't take part with all of its operands: the call is made all the same, with what is in their place
  // in staging, so that the peers learn of it and all other calls go on. Of kind Refused.
  // NOLINTNEXTLINE(readability-redundant-member-init): it may be left out of an initializer that names members
  Error refused = {};
  std::function<void(const Error&)> done;  // on the loop, once; must not block
};

// A call that somebody else carries out (a stock backend): counted and compared like our own, and watched.
struct DelegatedCall {
  Signature signature;
  bool compared = true;                      // false: point to point, which only two ranks make
  std::chrono::milliseconds timeout{0};      // 0: none
  std::function<void(const Error&)> failed;  // on the loop, at most once, never after finish(); must not block
};

}  // namespace fairring
