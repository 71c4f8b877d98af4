#include "kernels/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace fairring {

#ifdef __SSE2__

namespace {

constexpr std::size_t kLineBytes = 64;

// For fewer bytes the fence takes longer than is gained.
constexpr std::size_t kLeastBytes = 1024;

// A line that is stored as a whole leaves the processor in one piece.
void streamLine(std::byte* to, const std::byte* from) {
  constexpr std::size_t kParts = kLineBytes / sizeof(__m128i);
  __m128i parts[kParts];
  std::memcpy(parts, from, kLineBytes);
  for (std::size_t part = 0; part < kParts; ++part)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to) + part, parts[part]);
}

}  // namespace

void streamCopy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes < kLeastBytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  const std::size_t beforeLine = (kLineBytes - reinterpret_cast<std::uintptr_t>(to) % kLineBytes) % kLineBytes;
  std::size_t done = std::min(beforeLine, bytes);
  std::memcpy(to, from, done);
  for (; bytes - done >= kLineBytes; done += kLineBytes) streamLine(to + done, from + done);
  std::memcpy(to + done, from + done, bytes - done);
  // Streaming stores are not in the order of others.
  _mm_sfence();
}

#else

void streamCopy(std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

#endif

}  // namespace fairring
