// A collective call as the group sees it: what must be equal on all ranks, and, for an all-reduce of ours, one
// contiguous tensor, in place.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "base/error.h"
#include "kernels/reduce.h"

namespace fairring {

// What must be equal on all ranks of a call. Not in it: what may differ (shape, strides, async, timeout, factors).
struct Signature {
  std::string text;          // for people: "all_reduce SUM of 1024 Float32"; long ones are cut when they are shown
  std::uint64_t digest = 0;  // of all that must be equal; 0: the text says all of it
};

struct Call {
  void* data = nullptr;  // stays valid until `done`
  std::uint64_t elements = 0;
  Reduction reduction;                   // once for the whole all-reduce
  double scale = 1.0;                    // of this rank's elements, before they are reduced; differs between ranks
  std::chrono::milliseconds timeout{0};  // 0: none
  Signature signature;
  std::function<void(const Error&)> done;  // on the loop, once; must not block
};

// A call that somebody else carries out (a stock backend): counted and compared like our own, and watched.
struct OutsideCall {
  Signature signature;
  bool compared = true;                      // false: point to point, which only two ranks make
  std::chrono::milliseconds timeout{0};      // 0: none
  std::function<void(const Error&)> failed;  // on the loop, at most once, never after finish(); must not block
};

}  // namespace fairring
