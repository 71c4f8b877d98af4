// The summing loops for one instruction set, FAIRRING_ISA: the build compiles this file once for each.
// Whatever it defines, but for the one entry, stands in the anonymous namespace, and it calls no inline function of the
// standard library: the linker keeps one copy of such a function for all, which another processor might not run.
//
// Elements go through in blocks whose sums stay in the first cache: the inputs are read once, in order, and the output
// is written after all inputs of its block were read, so it may be one of them.
#include "kernels/loops.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

#define FAIRRING_ENTRY_OF(isa) FAIRRING_ENTRY_NAME(isa)
#define FAIRRING_ENTRY_NAME(isa) sumWith_##isa

namespace fairring {

namespace {

constexpr std::size_t kBlock = 1024;  // elements

template <class T>
struct Plain {  // summed as it is stored
  using Element = T;
  using Wide = T;
  static Wide widen(Element element) { return element; }
  static Element narrow(Wide wide) { return wide; }
};

struct Brain {  // bfloat16: the upper half of a float
  using Element = std::uint16_t;
  using Wide = float;

  static Wide widen(Element element) { return __builtin_bit_cast(float, static_cast<std::uint32_t>(element) << 16); }

  static Element narrow(Wide wide) {
    const auto bits = __builtin_bit_cast(std::uint32_t, wide);
    const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;  // nearest, ties to even
    const std::uint32_t quietNan = (bits >> 16) | 0x40;                        // rounding could end in infinity
    return static_cast<Element>((bits & 0x7fffffff) > 0x7f800000 ? quietNan : rounded);
  }
};

// a where the condition holds, else b: without a branch, which the compiler would not make vectors of.
std::uint32_t select(bool condition, std::uint32_t a, std::uint32_t b) {
  const std::uint32_t mask = 0u - static_cast<std::uint32_t>(condition);
  return (a & mask) | (b & ~mask);
}

struct Half {  // IEEE binary16, by integer arithmetic: where the processor can't, and for what is left of a vector
  using Element = std::uint16_t;
  using Wide = float;

  static Wide widen(Element element) {
    const std::uint32_t sign = (element & 0x8000u) << 16;
    const std::uint32_t shifted = (element & 0x7fffu) << 13;  // exponent and fraction where a float has them
    const std::uint32_t normal = shifted + (112u << 23);      // exponents' biases: 127 - 15
    const std::uint32_t infinite = shifted | 0x7f800000u;
    // Denormals: as if the leading bit were 1, which is then subtracted again, exactly.
    const float denormal = __builtin_bit_cast(float, shifted + (113u << 23)) - 0x1p-14f;
    const std::uint32_t finite = select(shifted < (1u << 23), __builtin_bit_cast(std::uint32_t, denormal), normal);
    return __builtin_bit_cast(float, sign | select(shifted >= (31u << 23), infinite, finite));
  }

  static Element narrow(Wide wide) {
    const auto bits = __builtin_bit_cast(std::uint32_t, wide);
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const std::uint32_t normal = (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    // Denormals: 0.5 has the place value of the last bit that is kept, so the addition rounds there.
    const float aligned = __builtin_bit_cast(float, magnitude) + 0.5f;
    const std::uint32_t denormal = __builtin_bit_cast(std::uint32_t, aligned) - (126u << 23);
    const std::uint32_t finite = select(magnitude < (113u << 23), denormal, normal);
    const std::uint32_t infinite = select(magnitude > 0x7f800000u, 0x7e00u, 0x7c00u);
    return static_cast<Element>(sign | select(magnitude >= (143u << 23), infinite, finite));
  }
};

struct AsIs {
  template <class Value>
  Value operator()(Value value) const {
    return value;
  }
};

template <class Wide>
struct Scaled {
  Wide factor;

  template <class Value>
  Value operator()(Value value) const {
    return value * factor;
  }
};

// What is done to a block: begin sets the sums to those of the first inputs, from left to right, add adds one more,
// finish stores them. Half and integers have their own overloads below.
template <class Type, class Scale, class... More>
void begin(Type, typename Type::Wide* sums, std::size_t count, Scale scale, const typename Type::Element* in,
           const More*... more) {
  for (std::size_t i = 0; i < count; ++i) {
    sums[i] = (scale(Type::widen(in[i])) + ... + scale(Type::widen(more[i])));
  }
}

template <class Type, class Scale>
void add(Type, typename Type::Wide* sums, std::size_t count, Scale scale, const typename Type::Element* in) {
  for (std::size_t i = 0; i < count; ++i) sums[i] += scale(Type::widen(in[i]));
}

template <class Type>
void finish(Type, typename Type::Element* out, const typename Type::Wide* sums, std::size_t count, std::int64_t) {
  for (std::size_t i = 0; i < count; ++i) out[i] = Type::narrow(sums[i]);
}

using Integer = Plain<std::uint64_t>;  // unsigned, so that sums wrap around

void finish(Integer, std::uint64_t* out, const std::uint64_t* sums, std::size_t count, std::int64_t divisor) {
  if (divisor == 1) {
    for (std::size_t i = 0; i < count; ++i) out[i] = sums[i];
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = static_cast<std::uint64_t>(static_cast<std::int64_t>(sums[i]) / divisor);
  }
}

#if defined(__F16C__)  // the processor converts eight at a time, to the same bits; the compiler does not find it

constexpr std::size_t kLanes = 8;

__m256 widenLanes(const std::uint16_t* in) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
}

template <class Scale, class... More>
void begin(Half, float* sums, std::size_t count, Scale scale, const std::uint16_t* in, const More*... more) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    _mm256_storeu_ps(sums + i, (scale(widenLanes(in + i)) + ... + scale(widenLanes(more + i))));
  }
  for (; i < count; ++i) sums[i] = (scale(Half::widen(in[i])) + ... + scale(Half::widen(more[i])));
}

template <class Scale>
void add(Half, float* sums, std::size_t count, Scale scale, const std::uint16_t* in) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    _mm256_storeu_ps(sums + i, _mm256_loadu_ps(sums + i) + scale(widenLanes(in + i)));
  }
  for (; i < count; ++i) sums[i] += scale(Half::widen(in[i]));
}

void finish(Half, std::uint16_t* out, const float* sums, std::size_t count, std::int64_t) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m128i narrow = _mm256_cvtps_ph(_mm256_loadu_ps(sums + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), narrow);
  }
  for (; i < count; ++i) out[i] = Half::narrow(sums[i]);
}

#endif

template <class Type, class Scale>
void sumBlocks(const LoopArguments& arguments, Scale scale) {
  using Element = Type::Element;
  alignas(64) typename Type::Wide sums[kBlock];
  for (std::size_t at = 0; at < arguments.elements; at += kBlock) {
    const std::size_t left = arguments.elements - at;
    const std::size_t count = left < kBlock ? left : kBlock;
    const auto input = [&](std::size_t k) { return static_cast<const Element*>(arguments.inputs[k]) + at; };
    if (arguments.inputCount == 1) {
      begin(Type{}, sums, count, scale, input(0));
    } else {
      begin(Type{}, sums, count, scale, input(0), input(1));
    }
    for (std::size_t k = 2; k < arguments.inputCount; ++k) add(Type{}, sums, count, scale, input(k));
    finish(Type{}, static_cast<Element*>(arguments.out) + at, sums, count, arguments.reduction.divisor);
  }
}

template <class Type>
void sumScaled(const LoopArguments& arguments) {
  using Wide = Type::Wide;
  const double scale = arguments.reduction.scale;
  if (scale == 1.0) return sumBlocks<Type>(arguments, AsIs{});
  sumBlocks<Type>(arguments, Scaled<Wide>{static_cast<Wide>(scale)});
}

}  // namespace

void FAIRRING_ENTRY_OF(FAIRRING_ISA)(const LoopArguments& arguments) {
  switch (arguments.reduction.dtype) {
    case DType::Float32: return sumScaled<Plain<float>>(arguments);
    case DType::Float64: return sumScaled<Plain<double>>(arguments);
    case DType::BFloat16: return sumScaled<Brain>(arguments);
    case DType::Float16: return sumScaled<Half>(arguments);
    case DType::Int64: return sumBlocks<Integer>(arguments, AsIs{});
  }
}

}  // namespace fairring
