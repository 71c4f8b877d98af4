// Arrays of fp32 as small integers in blocks with a scale each, and back, for data that travels in a quarter or an
// eighth of the bytes. Rounding errors are kept, to be added the next time. Pure: any thread, no state; the
// floating-point control register is set as by reduce().
//
// A block has 128 elements, an array's last block the rest. It is stored as its scale, a bf16, and its integers: the
// elements divided by the scale, rounded to the nearest, ties to even. The scale is the largest finite magnitude of the
// block divided by 127 (Int8) or 7 (Int4), rounded up. So nothing is cut off, and an error is at most half a scale.
// Int4 has two integers a byte: element i in the lower half of byte i, and element h + i in the upper, where h is half
// the block's elements, rounded up.
//
//   NaN, infinity            NaN, by an integer of its own (-128, -8); the block's other elements are as without it
//   a scale below 2^-126     0, and so is the block: all of it is rounding error
//   -0                       +0
//   the largest floats       infinity, where the nearest multiple of the scale is too large for a float, as in bf16
//   a single element         a last block of one element is a bf16 without an integer
//
// Any bytes can be decoded: a scale that no encoder writes gives other numbers, infinities or NaNs.
//
// Arrays may share memory if one is made in the other's place: the encoded one in the first bytes of the array that is
// encoded, or in the last bytes of the array that it becomes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fairring {

enum class Quantization : std::uint8_t { Int8, Int4 };

constexpr std::size_t kQuantizedBlock = 128;  // elements

std::size_t quantizedBytes(Quantization kind, std::size_t elements);
// lost[i] += the rounding error, unless the value is not finite or becomes so. lost: null if the errors are not wanted;
// shares no memory.
void quantize(Quantization kind, const float* values, std::byte* encoded, float* lost, std::size_t elements);
void dequantize(Quantization kind, const std::byte* encoded, float* values, std::size_t elements);

}  // namespace fairring
