// An all-reduce as its caller sees it: one contiguous tensor, in place.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "base/error.h"
#include "kernels/reduce.h"

namespace fairring {

struct Call {
  void* data = nullptr;  // stays valid until `done`
  std::uint64_t elements = 0;
  Reduction reduction;                     // scale of the inputs and divisor of the sum, once for the whole all-reduce
  std::chrono::milliseconds timeout{0};    // 0: none
  std::string title;                       // for messages: "all_reduce of 1024 float32"
  std::function<void(const Error&)> done;  // on the loop, once; must not block
};

}  // namespace fairring
