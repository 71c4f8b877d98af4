// How the elements of each dtype are read, held while they are reduced, and written: one type per dtype, with
//   Element  its form in memory, Wide  its form in registers, widen() and narrow() between the two.
// Only for *_isa.cc and the CUDA kernels, and so in a namespace per instruction set, FAIRRING_ISA: the linker keeps one
// copy of an inline function, which another processor might not run. For the same reason no function of the standard
// library is called here. A device converts by instructions of its own, to the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace fairring::FAIRRING_ISA {

// a if the condition holds, else b: without a branch, which would keep the compiler from vectorizing.
inline std::uint32_t select(bool condition, std::uint32_t a, std::uint32_t b) {
  const std::uint32_t mask = 0u - static_cast<std::uint32_t>(condition);
  return (a & mask) | (b & ~mask);
}

template <class T>
struct Plain {  // held as it is stored
  using Element = T;
  using Wide = T;
  static Wide widen(Element element) { return element; }
  static Element narrow(Wide wide) { return wide; }
};

struct Logical {  // a Bool: 0 or 1, whatever stands in memory
  using Element = std::uint8_t;
  using Wide = std::uint8_t;
  static Wide widen(Element element) { return element != 0 ? 1 : 0; }
  static Element narrow(Wide wide) { return wide; }
};

// A float by the rank of its bits in the order of all floats, as an integer, so that the least and the greatest are
// those of integers: -0 before +0, and NaNs beyond the infinities. NaNs are all brought to one end of the order, where
// they win: Nans is their number for one sign, positive for the lower end, negative for the upper.
template <class Signed, Signed Nans>
struct Ranked {
  using Element = Signed;
  using Wide = Signed;
  using Unsigned = std::make_unsigned_t<Signed>;

  static Signed mirror(Signed bits) {  // negative floats have their magnitude's order, upside down
    constexpr auto kMagnitude = static_cast<Signed>(static_cast<Unsigned>(-1) >> 1);
    return static_cast<Signed>(bits ^ ((bits >> (8 * sizeof(Signed) - 1)) & kMagnitude));
  }
  static Wide widen(Element bits) {
    return static_cast<Signed>(static_cast<Unsigned>(mirror(bits)) + static_cast<Unsigned>(Nans));
  }
  static Element narrow(Wide place) {
    return mirror(static_cast<Signed>(static_cast<Unsigned>(place) - static_cast<Unsigned>(Nans)));
  }
};

struct Brain {  // bfloat16: the upper half of a float
  using Element = std::uint16_t;
  using Wide = float;

  static Wide widen(Element element) { return __builtin_bit_cast(float, static_cast<std::uint32_t>(element) << 16); }

  static Element narrow(Wide wide) {
#if defined(__CUDA_ARCH__)
    Element element;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(element) : "f"(wide));
    return element;
#else
    const auto bits = __builtin_bit_cast(std::uint32_t, wide);
    const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;  // nearest, ties to even
    const std::uint32_t quietNan = (bits >> 16) | 0x40;                        // rounding could end in infinity
    return static_cast<Element>((bits & 0x7fffffff) > 0x7f800000 ? quietNan : rounded);
#endif
  }
};

struct Half {  // IEEE binary16 by integer arithmetic: if the processor has no instruction, and for the rest of a vector
  using Element = std::uint16_t;
  using Wide = float;

  static Wide widen(Element element) {
#if defined(__CUDA_ARCH__)
    Wide wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(element));
    return wide;
#else
    const std::uint32_t sign = (element & 0x8000u) << 16;
    const std::uint32_t shifted = (element & 0x7fffu) << 13;  // exponent and fraction where a float has them
    const std::uint32_t normal = shifted + (112u << 23);      // exponents' biases: 127 - 15
    const std::uint32_t infinite = shifted | 0x7f800000u;
    // Denormals: as if the leading bit were 1, which is then subtracted again, exactly.
    const float denormal = __builtin_bit_cast(float, shifted + (113u << 23)) - 0x1p-14f;
    const std::uint32_t finite = select(shifted < (1u << 23), __builtin_bit_cast(std::uint32_t, denormal), normal);
    return __builtin_bit_cast(float, sign | select(shifted >= (31u << 23), infinite, finite));
#endif
  }

  static Element narrow(Wide wide) {
#if defined(__CUDA_ARCH__)
    Element element;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(element) : "f"(wide));
    return element;
#else
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
#endif
  }
};

struct E4M3 {  // 4 bits of exponent, 3 of fraction; no infinities and one NaN, also for values that are too large
  using Element = std::uint8_t;
  using Wide = float;
  static constexpr std::uint32_t kNan = 0x7f;

  static Wide widen(Element element) {
    const std::uint32_t magnitude = element & 0x7fu;
    // Exponent and fraction where a float has them; the factor makes up for the exponents' biases, 127 - 7.
    const float finite = __builtin_bit_cast(float, magnitude << 20) * 0x1p120f;
    const std::uint32_t wide = select(magnitude == kNan, 0x7fc00000u, __builtin_bit_cast(std::uint32_t, finite));
    return __builtin_bit_cast(float, (element & 0x80u) << 24 | wide);
  }

  static Element narrow(Wide wide) {
    const auto bits = __builtin_bit_cast(std::uint32_t, wide);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const std::uint32_t normal = (magnitude - (120u << 23) + 0x7ffff + ((magnitude >> 20) & 1)) >> 20;
    // Denormals: as in Half, with a number that has the place value of their last bit.
    const float aligned = __builtin_bit_cast(float, magnitude) + 0x1p14f;
    const std::uint32_t denormal = __builtin_bit_cast(std::uint32_t, aligned) - (141u << 23);
    const std::uint32_t rounded = select(magnitude < (121u << 23), denormal, normal);
    return static_cast<Element>((bits >> 24 & 0x80u) | select(rounded > kNan, kNan, rounded));
  }
};

struct E5M2 {  // the upper half of a binary16
  using Element = std::uint8_t;
  using Wide = float;

  static Wide widen(Element element) { return Half::widen(static_cast<std::uint16_t>(element << 8)); }

  static Element narrow(Wide wide) {
    const auto bits = __builtin_bit_cast(std::uint32_t, wide);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const std::uint32_t normal = (magnitude - (112u << 23) + 0xfffff + ((magnitude >> 21) & 1)) >> 21;
    const float aligned = __builtin_bit_cast(float, magnitude) + 0x1p7f;  // denormals, as in Half
    const std::uint32_t denormal = __builtin_bit_cast(std::uint32_t, aligned) - (134u << 23);
    const std::uint32_t rounded = select(magnitude < (113u << 23), denormal, normal);
    const std::uint32_t infinite = select(magnitude > 0x7f800000u, 0x7eu, 0x7cu);
    return static_cast<Element>((bits >> 24 & 0x80u) | select(rounded >= 0x7c, infinite, rounded));
  }
};

// The unit in which elements are processed: here one, which the compiler turns into vectors where it can.
template <class Type>
struct Lanes {
  static constexpr std::size_t kCount = 1;
  static auto load(const Type::Element* from) { return Type::widen(*from); }
  static void store(Type::Element* to, Type::Wide wide) { *to = Type::narrow(wide); }
  static auto get(const Type::Wide* from) { return *from; }
  static void put(Type::Wide* to, Type::Wide wide) { *to = wide; }
};

#if defined(__F16C__)
struct HalfVector {  // the processor converts eight at a time, to the same bits; the compiler does not find that
  static constexpr std::size_t kCount = 8;
  static __m256 load(const std::uint16_t* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static void store(std::uint16_t* to, __m256 wide) {
    const __m128i narrow = _mm256_cvtps_ph(wide, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), narrow);
  }
  static __m256 get(const float* from) { return _mm256_loadu_ps(from); }
  static void put(float* to, __m256 wide) { _mm256_storeu_ps(to, wide); }
};

inline HalfVector vectorOf(Half) { return {}; }
#endif

template <class Type>
Lanes<Type> vectorOf(Type) {
  return {};
}

}  // namespace fairring::FAIRRING_ISA
