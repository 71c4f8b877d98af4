#include "device/gates.h"

#include <atomic>
#include <cassert>

namespace fairring {

namespace {

// More than any slice's, and less than half of what a word holds: devices compare the difference with zero.
constexpr Gates::Word kForEver = Gates::Word{1} << 62;

}  // namespace

Gates::Word* Gates::at(std::uint64_t slice, std::size_t gate) const {
  assert(gate < kGates);
  return words_ + slice % kLines * kGates + gate;
}

void Gates::open(std::uint64_t slice, std::size_t gate) {
  std::atomic_ref(*at(slice, gate)).store(opened(slice), std::memory_order_release);
}

void Gates::failAndOpenAll() {
  std::atomic_ref(words_[kLines * kGates]).store(1, std::memory_order_release);
  for (std::uint64_t line = 0; line < kLines; ++line) {
    for (std::size_t gate = 0; gate < kGates; ++gate) {
      std::atomic_ref(*at(line, gate)).store(kForEver, std::memory_order_release);
    }
  }
}

}  // namespace fairring
