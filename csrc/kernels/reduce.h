// The sum of n arrays into one, in one pass, on the CPU. Pure: any thread, no state.
// For every element the inputs are taken in the order given, so equal inputs give equal bits everywhere and in every
// run. 16-bit floats are widened to fp32, summed, and rounded once (to nearest even). The floating-point control
// register is set for the duration of the call (round to nearest, denormals kept), whatever the caller's was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fairring {

enum class DType : std::uint8_t { Float32, Float64, BFloat16, Float16, Int64 };

std::size_t bytesOf(DType dtype);
const char* name(DType dtype);

struct Reduction {
  DType dtype = DType::Float32;
  // Each input is multiplied by this before it is added: in fp32 (16-bit and 32-bit floats) or fp64. 1 leaves the
  // bits as they are. Not for integers.
  double scale = 1.0;
  // Integers: the sum is divided by this, truncating toward zero, after the last input. 1 leaves it. Not for floats.
  std::int64_t divisor = 1;
};

// out[i] = sum of inputs[k][i] over k, for i < elements. out may be one of the inputs; it may not overlap one partly.
// At least one input. Integer sums wrap around.
void reduce(const Reduction& reduction, void* out, std::span<const void* const> inputs, std::size_t elements);

}  // namespace fairring
