#include "nccl_reduction.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "report.h"

namespace emulated {
namespace {

template <class T>
struct Same {
  using Element = T;
  using Wide = T;
  static Wide widen(T element) { return element; }
  static T narrow(Wide wide) { return wide; }
};

struct HalfFloat {
  using Element = _Float16;
  using Wide = float;
  static float widen(_Float16 element) { return static_cast<float>(element); }
  static _Float16 narrow(float wide) { return static_cast<_Float16>(wide); }
};

struct BrainFloat {
  using Element = std::uint16_t;
  using Wide = float;
  static float widen(std::uint16_t element) { return std::bit_cast<float>(std::uint32_t{element} << 16); }
  static std::uint16_t narrow(float wide) {
    if (std::isnan(wide)) return 0x7fc0;
    const auto bits = std::bit_cast<std::uint32_t>(wide);
    return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
};

// Floats of eight bits: E4M3 without infinities, or E5M2. Rounded to the nearest, ties to even; a value that is too
// large becomes the largest number, as in NCCL.
template <int MantissaBits>
struct EightBits {
  using Element = std::uint8_t;
  using Wide = float;
  static constexpr int kLargest = MantissaBits == 3 ? 0x7e : 0x7b;

  static float widen(std::uint8_t element) {
    const int code = element & 0x7f;
    if (code > kLargest) return MantissaBits == 2 && code == kLargest + 1 ? INFINITY : NAN;
    const int exponent = code >> MantissaBits;
    const int mantissa = code & ((1 << MantissaBits) - 1);
    const int bias = (1 << (6 - MantissaBits)) - 1;
    const int whole = exponent == 0 ? mantissa : mantissa + (1 << MantissaBits);
    const float size = std::ldexp(static_cast<float>(whole), std::max(exponent, 1) - bias - MantissaBits);
    return (element & 0x80) != 0 ? -size : size;
  }

  static std::uint8_t narrow(float wide) {
    const int sign = std::signbit(wide) ? 0x80 : 0;
    if (std::isnan(wide)) return static_cast<std::uint8_t>(sign | 0x7f);
    const float size = std::abs(wide);
    int code = 0;
    while (code < kLargest && widen(static_cast<std::uint8_t>(code + 1)) <= size) ++code;
    if (code < kLargest) {
      const float below = size - widen(static_cast<std::uint8_t>(code));
      const float above = widen(static_cast<std::uint8_t>(code + 1)) - size;
      if (above < below || (above == below && code % 2 == 1)) ++code;
    }
    return static_cast<std::uint8_t>(sign | code);
  }
};

template <class Wide>
Wide combined(Wide a, Wide b, int operation) {
  switch (operation) {
    case ncclProd: return static_cast<Wide>(a * b);
    case ncclMax: return std::max(a, b);
    case ncclMin: return std::min(a, b);
    default: return static_cast<Wide>(a + b);
  }
}

template <class Type>
void reduceAs(void* out, const std::vector<const std::byte*>& inputs, std::size_t elements, int operation,
              double factor) {
  using Element = Type::Element;
  using Wide = Type::Wide;
  for (std::size_t i = 0; i < elements; ++i) {
    const auto read = [&](const std::byte* input) {
      Element element;
      std::memcpy(&element, input + i * sizeof(Element), sizeof element);
      const Wide wide = Type::widen(element);
      return operation == ncclNumOps ? static_cast<Wide>(wide * static_cast<Wide>(factor)) : wide;
    };
    Wide sum = read(inputs[0]);
    for (std::size_t k = 1; k < inputs.size(); ++k) sum = combined(sum, read(inputs[k]), operation);
    if (operation == ncclAvg) sum = static_cast<Wide>(sum / static_cast<Wide>(inputs.size()));
    const Element result = Type::narrow(sum);
    std::memcpy(static_cast<std::byte*>(out) + i * sizeof(Element), &result, sizeof result);
  }
}

}  // namespace

std::size_t bytesOf(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    default: return 8;
  }
}

void reduce(void* out, const std::vector<const std::byte*>& inputs, std::size_t elements, ncclDataType_t type,
            int operation, double factor) {
  switch (type) {
    case ncclFloat32: return reduceAs<Same<float>>(out, inputs, elements, operation, factor);
    case ncclFloat64: return reduceAs<Same<double>>(out, inputs, elements, operation, factor);
    case ncclFloat16: return reduceAs<HalfFloat>(out, inputs, elements, operation, factor);
    case ncclBfloat16: return reduceAs<BrainFloat>(out, inputs, elements, operation, factor);
    case ncclFloat8e4m3: return reduceAs<EightBits<3>>(out, inputs, elements, operation, factor);
    case ncclFloat8e5m2: return reduceAs<EightBits<2>>(out, inputs, elements, operation, factor);
    case ncclInt8: return reduceAs<Same<std::int8_t>>(out, inputs, elements, operation, factor);
    case ncclUint8: return reduceAs<Same<std::uint8_t>>(out, inputs, elements, operation, factor);
    case ncclInt32: return reduceAs<Same<std::int32_t>>(out, inputs, elements, operation, factor);
    case ncclUint32: return reduceAs<Same<std::uint32_t>>(out, inputs, elements, operation, factor);
    case ncclInt64: return reduceAs<Same<std::int64_t>>(out, inputs, elements, operation, factor);
    case ncclUint64: return reduceAs<Same<std::uint64_t>>(out, inputs, elements, operation, factor);
    default: fatal("NCCL: a reduction of dtype %d is not emulated", static_cast<int>(type));
  }
}

double readFactor(const void* scalar, ncclDataType_t type) {
  switch (type) {
    case ncclFloat64: return *static_cast<const double*>(scalar);
    case ncclFloat32: return static_cast<double>(*static_cast<const float*>(scalar));
    case ncclFloat16: return static_cast<double>(*static_cast<const _Float16*>(scalar));
    case ncclBfloat16: return static_cast<double>(BrainFloat::widen(*static_cast<const std::uint16_t*>(scalar)));
    default: fatal("NCCL: a factor of dtype %d is not emulated", static_cast<int>(type));
  }
}

}  // namespace emulated
