// The reducing loops, compiled once per instruction set from reduce_isa.cc, and the choice of those that this processor
// can run. Only for kernels/ and its tests; all other code calls reduce(). Pure: any thread, no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/reduce.h"

namespace fairring {

struct LoopArguments {
  Reduction reduction;
  void* out = nullptr;
  const Input* inputs = nullptr;
  std::size_t inputCount = 0;
  std::size_t elements = 0;
};

// Reduces as reduce() does, with the floating-point control register as it finds it. All give the same bits.
using Loops = void (*)(const LoopArguments&);

// NOLINTBEGIN(readability-identifier-naming): the suffix is the name that the build gives the instruction set
void reduceWith_baseline(const LoopArguments& arguments);
#if defined(__x86_64__)  // the build also compiles these there
void reduceWith_avx2(const LoopArguments& arguments);
void reduceWith_avx512(const LoopArguments& arguments);
#endif
// NOLINTEND(readability-identifier-naming)

struct Isa {
  const char* name;
  Loops loops;
};

std::vector<Isa> runnableIsas();  // compiled in, and this processor has it; the best one last

}  // namespace fairring
