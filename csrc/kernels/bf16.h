// Arrays of fp32 as arrays of bf16 and back, for data that travels in half the bytes. Rounding errors are kept, to be
// added the next time. Pure: any thread, no state; the floating-point control register is set as by reduce().
//
// Arrays may share memory if one is made in the other's place: the narrow one in the first half of the wide one that is
// rounded, or in the second half of the wide one that it becomes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fairring {

using Bf16 = std::uint16_t;  // its bits

// rounded[i] = the bf16 nearest to values[i], ties to even; lost[i] += the rounding error, unless the value is not
// finite or becomes so. lost: null if the errors are not wanted; shares no memory.
void roundToBf16(const float* values, Bf16* rounded, float* lost, std::size_t elements);
// values[i] += lost[i]; lost[i] = 0.
void addLost(float* values, float* lost, std::size_t elements);
// The sum of their magnitudes, without those that are not finite.
double magnitudeOf(const float* values, std::size_t elements);
void widen(const Bf16* narrow, float* wide, std::size_t elements);

}  // namespace fairring
