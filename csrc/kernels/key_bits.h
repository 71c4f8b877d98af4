// Sets of keys as bitmaps: bit k % 64 of word k / 64 stands for key k. Pure: any thread, no state.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fairring {

using KeyBits = std::vector<std::uint64_t>;

constexpr std::uint64_t wordsFor(std::uint64_t keysBelow) { return (keysBelow + 63) / 64; }

inline void setKey(std::span<std::uint64_t> bits, std::uint64_t key) { bits[key / 64] |= 1ULL << (key % 64); }
void setKeys(std::span<std::uint64_t> bits, std::span<const std::uint64_t> keys);
void uniteKeys(std::span<std::uint64_t> bits, std::span<const std::uint64_t> others);
std::vector<std::uint64_t> keysIn(std::span<const std::uint64_t> bits);  // ascending

// Marks the keys of `all` that are in `some`: bit i of `places` stands for the i-th key of `all`. Both have as many
// words, and `all` includes the keys of `some`.
void addPlaces(std::span<std::uint64_t> places, std::span<const std::uint64_t> some,
               std::span<const std::uint64_t> all);

// The word's bits under the mask, moved together: by the processor's instruction for it, and without.
std::uint64_t extract(std::uint64_t word, std::uint64_t mask);
std::uint64_t extractAnywhere(std::uint64_t word, std::uint64_t mask);

}  // namespace fairring
