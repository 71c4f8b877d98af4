// Encoding and decoding of quantized blocks for one instruction set, FAIRRING_ISA: the build compiles this file once
// for each. No function of the standard library is called here, as elements.h explains.
#include "kernels/elements.h"
#include "kernels/loops.h"
#include "kernels/quantized.h"

#define FAIRRING_ENTRY_OF(entry, isa) FAIRRING_ENTRY_NAME(entry, isa)
#define FAIRRING_ENTRY_NAME(entry, isa) entry##_##isa

namespace fairring {
namespace FAIRRING_ISA {

// A float of small magnitude that this is added to is rounded to an integer, to nearest even, in its lowest bits.
constexpr float kRounding = 0x1.8p23f;
constexpr std::uint32_t kRoundingBits = 0x4b400000u;
constexpr std::uint32_t kInfinityBits = 0x7f800000u;
constexpr std::uint32_t kNanBits = 0x7fc00000u;
constexpr std::size_t kScaleBytes = 2;

struct Bytes {  // an integer in each
  static constexpr float kMost = 127;
  static constexpr std::int8_t kNan = -128;

  static std::size_t pack(const std::int8_t* integers, std::uint8_t* packed, std::size_t count) {
    __builtin_memcpy(packed, integers, count);
    return count;
  }
  static std::size_t unpack(const std::uint8_t* packed, std::int8_t* integers, std::size_t count) {
    __builtin_memcpy(integers, packed, count);
    return count;
  }
};

struct Halves {  // two in each byte
  static constexpr float kMost = 7;
  static constexpr std::int8_t kNan = -8;

  // There is room for one more integer than there are.
  static std::size_t pack(std::int8_t* integers, std::uint8_t* packed, std::size_t count) {
    const std::size_t half = (count + 1) / 2;
    if (count % 2 != 0) integers[count] = 0;
    for (std::size_t i = 0; i < half; ++i) {
      const auto lower = static_cast<std::uint8_t>(integers[i]);
      const auto upper = static_cast<std::uint8_t>(integers[half + i]);
      packed[i] = static_cast<std::uint8_t>((lower & 0xfu) | upper << 4);
    }
    return half;
  }
  static std::size_t unpack(const std::uint8_t* packed, std::int8_t* integers, std::size_t count) {
    const std::size_t half = (count + 1) / 2;
    for (std::size_t i = 0; i < half; ++i) {
      integers[i] = static_cast<std::int8_t>(((packed[i] & 0xfu) ^ 8u) - 8u);
      integers[half + i] = static_cast<std::int8_t>(((packed[i] >> 4) ^ 8u) - 8u);
    }
    return half;
  }
};

inline std::uint32_t bitsOf(float value) { return __builtin_bit_cast(std::uint32_t, value); }
inline float floatOf(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline float finiteOr0(float value) {
  return floatOf(select((bitsOf(value) & kInfinityBits) != kInfinityBits, bitsOf(value), 0));
}

// Of the largest finite magnitude, rounded up to a bf16; 0 where its reciprocal would be infinite.
template <class Integers>
std::uint16_t scaleOf(const float* values, std::size_t count) {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<std::int32_t>(bitsOf(values[i]) & 0x7fffffffu);
    const std::int32_t finite = magnitude < static_cast<std::int32_t>(kInfinityBits) ? magnitude : 0;
    largest = largest > finite ? largest : finite;
  }
  const std::uint32_t scale = bitsOf(floatOf(static_cast<std::uint32_t>(largest)) / Integers::kMost) + 0xffff;
  return static_cast<std::uint16_t>(scale < 0x00800000u ? 0 : scale >> 16);
}

template <class Integers>
std::size_t encodeBlock(const float* values, std::uint8_t* encoded, float* __restrict lost, std::size_t count) {
  alignas(64) std::int8_t integers[kQuantizedBlock];
  const std::uint16_t narrow = scaleOf<Integers>(values, count);
  const float scale = Brain::widen(narrow);
  const float inverse = narrow == 0 ? 0 : 1 / scale;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t rounded = bitsOf(values[i] * inverse + kRounding) - kRoundingBits;
    const bool isFinite = (bitsOf(values[i]) & kInfinityBits) != kInfinityBits;
    integers[i] = static_cast<std::int8_t>(select(isFinite, rounded, static_cast<std::uint32_t>(Integers::kNan)));
  }
  if (lost != nullptr) {
    for (std::size_t i = 0; i < count; ++i) {
      const float decoded = (values[i] * inverse + kRounding - kRounding) * scale;
      lost[i] += finiteOr0(values[i] - decoded);
    }
  }
  __builtin_memcpy(encoded, &narrow, kScaleBytes);
  return kScaleBytes + Integers::pack(integers, encoded + kScaleBytes, count);
}

template <class Integers>
std::size_t decodeBlock(const std::uint8_t* encoded, float* values, std::size_t count) {
  alignas(64) std::int8_t integers[kQuantizedBlock];
  std::uint16_t narrow;
  __builtin_memcpy(&narrow, encoded, kScaleBytes);
  const std::size_t bytes = kScaleBytes + Integers::unpack(encoded + kScaleBytes, integers, count);
  const float scale = Brain::widen(narrow);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(integers[i]) * scale;
    values[i] = floatOf(select(integers[i] == Integers::kNan, kNanBits, bitsOf(value)));
  }
  return bytes;
}

inline void encodeSingle(float value, std::uint8_t* encoded, float* lost) {
  const std::uint16_t narrow = Brain::narrow(value);
  if (lost != nullptr) *lost += finiteOr0(value - Brain::widen(narrow));
  __builtin_memcpy(encoded, &narrow, kScaleBytes);
}

inline void decodeSingle(const std::uint8_t* encoded, float* value) {
  std::uint16_t narrow;
  __builtin_memcpy(&narrow, encoded, kScaleBytes);
  *value = Brain::widen(narrow);
}

template <class Integers>
void encode(const float* values, std::byte* encoded, float* lost, std::size_t elements) {
  auto* to = reinterpret_cast<std::uint8_t*>(encoded);
  std::size_t at = 0;
  for (; at + kQuantizedBlock <= elements; at += kQuantizedBlock)
    to += encodeBlock<Integers>(values + at, to, lost == nullptr ? nullptr : lost + at, kQuantizedBlock);
  const std::size_t rest = elements - at;
  float* const lostOfRest = lost == nullptr ? nullptr : lost + at;
  if (rest == 1) encodeSingle(values[at], to, lostOfRest);
  if (rest > 1) encodeBlock<Integers>(values + at, to, lostOfRest, rest);
}

template <class Integers>
void decode(const std::byte* encoded, float* values, std::size_t elements) {
  const auto* from = reinterpret_cast<const std::uint8_t*>(encoded);
  std::size_t at = 0;
  for (; at + kQuantizedBlock <= elements; at += kQuantizedBlock)
    from += decodeBlock<Integers>(from, values + at, kQuantizedBlock);
  const std::size_t rest = elements - at;
  if (rest == 1) decodeSingle(from, values + at);
  if (rest > 1) decodeBlock<Integers>(from, values + at, rest);
}

}  // namespace FAIRRING_ISA

void FAIRRING_ENTRY_OF(quantizeWith, FAIRRING_ISA)(Quantization kind, const float* values, std::byte* encoded,
                                                   float* lost, std::size_t elements) {
  using namespace FAIRRING_ISA;
  (kind == Quantization::Int8 ? encode<Bytes> : encode<Halves>)(values, encoded, lost, elements);
}

void FAIRRING_ENTRY_OF(dequantizeWith, FAIRRING_ISA)(Quantization kind, const std::byte* encoded, float* values,
                                                     std::size_t elements) {
  using namespace FAIRRING_ISA;
  (kind == Quantization::Int8 ? decode<Bytes> : decode<Halves>)(encoded, values, elements);
}

}  // namespace fairring
