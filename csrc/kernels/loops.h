// The loops that are compiled once per instruction set, from reduce_isa.cc and quantized_isa.cc, and the choice of
// those that this processor can run. Only for kernels/ and its tests; all other code calls reduce(), quantize() and
// dequantize(). Pure: any thread, no state. The loops use the floating-point control register as they find it. All
// instruction sets give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/quantized.h"
#include "kernels/reduce.h"

namespace fairring {

struct LoopArguments {
  Reduction reduction;
  void* out = nullptr;
  const Input* inputs = nullptr;
  std::size_t inputCount = 0;
  std::size_t elements = 0;
};

using QuantizeLoop = decltype(quantize);
using DequantizeLoop = decltype(dequantize);

// NOLINTBEGIN(readability-identifier-naming): the suffix is the name that the build gives the instruction set
void reduceWith_baseline(const LoopArguments& arguments);
QuantizeLoop quantizeWith_baseline;
DequantizeLoop dequantizeWith_baseline;
#if defined(__x86_64__)  // the build also compiles these there
void reduceWith_avx2(const LoopArguments& arguments);
QuantizeLoop quantizeWith_avx2;
DequantizeLoop dequantizeWith_avx2;
void reduceWith_avx512(const LoopArguments& arguments);
QuantizeLoop quantizeWith_avx512;
DequantizeLoop dequantizeWith_avx512;
#endif
// NOLINTEND(readability-identifier-naming)

struct Isa {
  const char* name;
  void (*reduce)(const LoopArguments&);
  QuantizeLoop* quantize;
  DequantizeLoop* dequantize;
};

std::vector<Isa> runnableIsas();  // compiled in, and this processor has it; the best one last

}  // namespace fairring
