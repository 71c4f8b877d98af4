// The work of one device thread in poisoning the results of a failed call. For the CUDA kernel and for the tests.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fairring {

constexpr std::size_t kMostPoisoned = 128;

struct PoisonArguments {
  struct Memory {
    std::byte* begin;
    std::uint64_t bytes;
  };
  const volatile std::uint64_t* failed = nullptr;  // in pinned memory; zero: nothing is written
  std::uint64_t count = 0;
  Memory results[kMostPoisoned];
};

inline void poison(const PoisonArguments& arguments, std::uint64_t thread, std::uint64_t threads) {
  if (*arguments.failed == 0) return;
  for (std::uint64_t i = 0; i < arguments.count; ++i) {
    const PoisonArguments::Memory& result = arguments.results[i];
    for (std::uint64_t at = thread; at < result.bytes; at += threads) result.begin[at] = std::byte{0xFF};
  }
}

}  // namespace fairring
