// n arrays reduced into one, in one pass, on the CPU. Pure: any thread, no state.
// For every element the inputs are taken in the given order, so equal inputs give equal bits everywhere and in every
// run. The floating-point control register is set for the duration of the call (round to nearest, denormals kept),
// whatever the caller's setting was.
//
// The operations:
// - Sum, Product: floats of 16 and 8 bits are widened to fp32 and rounded once (to nearest even); integers wrap around.
//   A result that is too large for an E4M3, which has no infinities, becomes a NaN.
// - Min, Max: a NaN among the inputs makes the result a NaN; -0 is less than +0.
// - BitAnd, BitOr, BitXor: not for floats.
// - Bool: every byte but 0 counts as true, the result is 0 or 1. Sum and Max are "or", Product and Min are "and".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fairring {

enum class DType : std::uint8_t {
  Float32,
  Float64,
  BFloat16,
  Float16,
  Int8,
  Int16,
  Int32,
  Int64,
  UInt8,
  UInt16,
  UInt32,
  UInt64,
  Bool,
  Float8E4M3,
  Float8E5M2,
};
enum class Op : std::uint8_t { Sum, Product, Min, Max, BitAnd, BitOr, BitXor };

std::size_t bytesOf(DType dtype);
const char* name(DType dtype);
bool isFloat(DType dtype);
bool isDefined(Op op, DType dtype);

struct Reduction {
  DType dtype = DType::Float32;
  Op op = Op::Sum;
  // The sum is divided by this, truncating toward zero, after the last input. 1 leaves it. For sums of integers.
  std::int32_t divisor = 1;

  bool operator==(const Reduction&) const = default;
};

struct Input {
  const void* data = nullptr;
  // The input is multiplied by this before it is added: in fp32 (floats of up to 32 bits) or fp64. 1 leaves its value
  // unchanged. For sums of floats.
  double scale = 1.0;
};

// out[i] = inputs[0][i] op inputs[1][i] op ..., for i < elements. out may be one of the inputs, but must not overlap
// one partly. There is at least one input. The operation must be defined for the dtype.
void reduce(const Reduction& reduction, void* out, std::span<const Input> inputs, std::size_t elements);

// The instruction set that reduce() uses on this processor: "baseline", "avx2" or "avx512".
const char* instructionSet();

}  // namespace fairring
