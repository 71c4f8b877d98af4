#include "kernels/key_bits.h"

#include <bit>
#include <cstddef>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fairring {

namespace {

std::uint64_t countOf(std::span<const std::uint64_t> bits) {
  std::uint64_t count = 0;
  for (const std::uint64_t word : bits) count += static_cast<std::uint64_t>(std::popcount(word));
  return count;
}

#if defined(__x86_64__)
__attribute__((target("bmi2"))) std::uint64_t extractByBmi2(std::uint64_t word, std::uint64_t mask) {
  return _pext_u64(word, mask);
}

const bool hasBmi2 = __builtin_cpu_supports("bmi2") != 0;
#endif

}  // namespace

void setKeys(std::span<std::uint64_t> bits, std::span<const std::uint64_t> keys) {
  for (auto key = keys.begin(); key != keys.end();) {  // a word at a time: most are of the word before
    const std::uint64_t word = *key / 64;
    std::uint64_t set = 0;
    for (; key != keys.end() && *key / 64 == word; ++key) set |= 1ULL << (*key % 64);
    bits[word] |= set;
  }
}

void uniteKeys(std::span<std::uint64_t> bits, std::span<const std::uint64_t> others) {
  for (std::size_t word = 0; word < others.size(); ++word) bits[word] |= others[word];
}

std::vector<std::uint64_t> keysIn(std::span<const std::uint64_t> bits) {
  std::vector<std::uint64_t> keys;
  keys.reserve(countOf(bits));
  for (std::size_t word = 0; word < bits.size(); ++word) {
    for (std::uint64_t left = bits[word]; left != 0; left &= left - 1)
      keys.push_back(word * 64 + static_cast<std::uint64_t>(std::countr_zero(left)));
  }
  return keys;
}

void addPlaces(std::span<std::uint64_t> places, std::span<const std::uint64_t> some,
               std::span<const std::uint64_t> all) {
  std::uint64_t place = 0;
  for (std::size_t word = 0; word < all.size(); ++word) {
    if (all[word] == 0) continue;
    const std::uint64_t extracted = extract(some[word], all[word]);
    const std::uint64_t at = place % 64;
    const auto keys = static_cast<std::uint64_t>(std::popcount(all[word]));
    places[place / 64] |= extracted << at;
    if (at != 0 && at + keys > 64) places[place / 64 + 1] |= extracted >> (64 - at);
    place += keys;
  }
}

std::uint64_t extract(std::uint64_t word, std::uint64_t mask) {
#if defined(__x86_64__)
  if (hasBmi2) return extractByBmi2(word, mask);
#endif
  return extractAnywhere(word, mask);
}

std::uint64_t extractAnywhere(std::uint64_t word, std::uint64_t mask) {
  std::uint64_t extracted = 0;
  for (int place = 0; mask != 0; mask &= mask - 1, ++place)
    extracted |= ((word >> std::countr_zero(mask)) & 1) << place;
  return extracted;
}

}  // namespace fairring
