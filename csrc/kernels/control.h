// The thread's floating-point control register, set for a scope: round to nearest, denormals kept, no traps.
// Callers may have other settings (PyTorch's set_flush_denormal), and different ones on different ranks.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace fairring {

#if defined(__x86_64__)
inline std::uint64_t floatingPointControl() { return _mm_getcsr(); }
inline void setFloatingPointControl(std::uint64_t value) { _mm_setcsr(static_cast<unsigned>(value)); }
constexpr std::uint64_t kStandardControl = 0x1f80;  // all exceptions masked, none of the other bits
#elif defined(__aarch64__)
inline std::uint64_t floatingPointControl() {
  std::uint64_t value;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
inline void setFloatingPointControl(std::uint64_t value) { asm volatile("msr fpcr, %0" : : "r"(value)); }
constexpr std::uint64_t kStandardControl = 0;
#else
#error "Fairring's sums need to know this processor's floating-point control register: add it here"
#endif

class StandardFloatingPoint {
 public:
  StandardFloatingPoint() : callers_(floatingPointControl()) { setFloatingPointControl(kStandardControl); }
  ~StandardFloatingPoint() { setFloatingPointControl(callers_); }
  StandardFloatingPoint(const StandardFloatingPoint&) = delete;
  StandardFloatingPoint& operator=(const StandardFloatingPoint&) = delete;

 private:
  const std::uint64_t callers_;
};

}  // namespace fairring
