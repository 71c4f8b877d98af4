// The result that reduce() must give for one element, computed another way. Floats have 113 bits of fraction, so a sum
// or product of two doubles rounds to the right double. Integers have 128 bits, of which the lowest are kept.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "kernels/reduce.h"

namespace fairring::reference {

#if defined(__x86_64__)
using Exact = __float128;
#else
using Exact = long double;
#endif
static_assert(sizeof(Exact) == 16);
__extension__ using Bits = unsigned __int128;
__extension__ using Integer = __int128;

struct Format {  // of a float: a sign, then these
  int exponentBits;
  int fractionBits;
  bool hasInfinities = true;  // without, all but one of their exponent's numbers are finite

  int bias() const { return (1 << (exponentBits - 1)) - 1; }
  std::uint64_t sign() const { return std::uint64_t{1} << (exponentBits + fractionBits); }
  std::uint64_t infinity() const { return ((std::uint64_t{1} << exponentBits) - 1) << fractionBits; }
  std::uint64_t greatest() const { return hasInfinities ? infinity() : sign() - 2; }  // that is no NaN
  std::uint64_t tooLarge() const { return hasInfinities ? infinity() : sign() - 1; }
  bool isNan(std::uint64_t bits) const { return (bits & ~sign()) > greatest(); }
};

inline Format formatOf(DType dtype) {
  switch (dtype) {
    case DType::Float64: return {11, 52};
    case DType::BFloat16: return {8, 7};
    case DType::Float16: return {5, 10};
    case DType::Float8E4M3: return {4, 3, false};
    case DType::Float8E5M2: return {5, 2};
    default: return {8, 23};
  }
}

inline Exact power(int exponent) { return std::bit_cast<Exact>(static_cast<Bits>(exponent + 16383) << 112); }

inline Exact decode(Format format, std::uint64_t bits) {
  const std::uint64_t magnitude = bits & ~format.sign();
  const auto exponent = static_cast<int>(magnitude >> format.fractionBits);
  const std::uint64_t fraction = magnitude & ((std::uint64_t{1} << format.fractionBits) - 1);
  Exact value = 0;
  if (format.isNan(bits)) {
    value = static_cast<Exact>(__builtin_nan(""));
  } else if (format.hasInfinities && magnitude == format.infinity()) {
    value = static_cast<Exact>(__builtin_inf());
  } else if (exponent == 0) {
    value = static_cast<Exact>(fraction) * power(1 - format.bias() - format.fractionBits);
  } else {
    value = (static_cast<Exact>(fraction) + power(format.fractionBits)) *
            power(exponent - format.bias() - format.fractionBits);
  }
  return (bits & format.sign()) != 0 ? -value : value;
}

// To nearest, ties to even. NaNs become one NaN.
inline std::uint64_t encode(Format format, Exact value) {
  if (value != value) return format.greatest() + 1;
  const auto bits = std::bit_cast<Bits>(value);
  const std::uint64_t sign = (bits >> 127) != 0 ? format.sign() : 0;
  const int exponent = static_cast<int>(bits >> 112 & 0x7fff) - 16383;
  if (exponent > format.bias() + 1) return sign | format.tooLarge();
  const int least = 1 - format.bias();  // below it, denormals: their fraction has fewer bits
  const int lost = 112 - format.fractionBits + (exponent < least ? least - exponent : 0);
  if (lost > 114) return sign;  // less than half of the smallest
  const Bits one = 1;
  const Bits fraction = (bits & ((one << 112) - 1)) | (one << 112);
  const Bits half = one << (lost - 1);
  Bits kept = fraction >> lost;
  const Bits rest = fraction & ((one << lost) - 1);
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  const Bits biased = exponent < least ? 0 : static_cast<Bits>(exponent + format.bias() - 1) << format.fractionBits;
  const auto magnitude =
      static_cast<std::uint64_t>(biased + kept);  // the leading bit, and a carry, count up the exponent
  return sign | (magnitude > format.greatest() ? format.tooLarge() : magnitude);
}

inline Exact combine(Op op, Exact a, Exact b) {
  if (op == Op::Sum) return a + b;
  if (op == Op::Product) return a * b;
  if (a != a || b != b) return a + b;
  const bool less = a < b || (a == b && std::bit_cast<Bits>(a) >> 127 != 0);
  return less == (op == Op::Min) ? a : b;
}

inline std::uint64_t reduceFloats(const Reduction& reduction, const std::vector<std::uint64_t>& inputs,
                                  const std::vector<double>& scales) {
  const Format format = formatOf(reduction.dtype);
  const Format wide = reduction.dtype == DType::Float64 ? format : formatOf(DType::Float32);
  const auto round = [&wide](Exact value) { return decode(wide, encode(wide, value)); };
  const auto input = [&](std::size_t k) { return round(decode(format, inputs[k]) * round(scales[k % scales.size()])); };
  Exact result = input(0);
  for (std::size_t k = 1; k < inputs.size(); ++k) result = round(combine(reduction.op, result, input(k)));
  return encode(format, result);
}

inline Integer combine(Op op, Integer a, Integer b) {
  switch (op) {
    case Op::Sum: return a + b;
    case Op::Product: return static_cast<Integer>(static_cast<Bits>(a) * static_cast<Bits>(b));
    case Op::Min: return a < b ? a : b;
    case Op::Max: return a < b ? b : a;
    case Op::BitAnd: return a & b;
    case Op::BitOr: return a | b;
    case Op::BitXor: return a ^ b;
  }
  return 0;
}

inline bool isSigned(DType dtype) {
  return dtype == DType::Int8 || dtype == DType::Int16 || dtype == DType::Int32 || dtype == DType::Int64;
}

inline std::uint64_t reduceIntegers(const Reduction& reduction, const std::vector<std::uint64_t>& inputs) {
  const auto width = static_cast<int>(8 * bytesOf(reduction.dtype));
  const Integer modulus = Integer{1} << width;
  const auto wrap = [&](Integer value) {  // into the dtype's range
    value = ((value % modulus) + modulus) % modulus;
    return isSigned(reduction.dtype) && value >= modulus / 2 ? value - modulus : value;
  };
  const auto input = [&](std::size_t k) { return wrap(static_cast<Integer>(inputs[k])); };
  Integer result = input(0);
  for (std::size_t k = 1; k < inputs.size(); ++k) result = wrap(combine(reduction.op, result, input(k)));
  result /= reduction.divisor;
  return static_cast<std::uint64_t>(((result % modulus) + modulus) % modulus);
}

inline std::uint64_t reduceTruths(Op op, const std::vector<std::uint64_t>& inputs) {
  std::size_t truths = 0;
  for (const std::uint64_t bits : inputs) truths += (bits & 0xff) != 0 ? 1 : 0;
  if (op == Op::BitXor) return truths % 2;
  const bool any = op == Op::Sum || op == Op::Max || op == Op::BitOr;
  return truths >= (any ? 1 : inputs.size()) ? 1 : 0;
}

// scales: of the inputs, one after the other; for sums of floats.
inline std::uint64_t reduce(const Reduction& reduction, const std::vector<std::uint64_t>& inputs,
                            const std::vector<double>& scales) {
  if (reduction.dtype == DType::Bool) return reduceTruths(reduction.op, inputs);
  return isFloat(reduction.dtype) ? reduceFloats(reduction, inputs, scales) : reduceIntegers(reduction, inputs);
}

}  // namespace fairring::reference
