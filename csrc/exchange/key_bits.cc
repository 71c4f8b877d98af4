#include "exchange/key_bits.h"

#include <bit>

namespace fairring {

void setKeys(std::span<std::uint64_t> bits, std::span<const std::uint64_t> keys) {
  for (const std::uint64_t key : keys) bits[key / 64] |= 1ULL << (key % 64);
}

std::vector<std::uint64_t> keysIn(std::span<const std::uint64_t> bits) {
  std::uint64_t count = 0;
  for (const std::uint64_t word : bits) count += static_cast<std::uint64_t>(std::popcount(word));
  std::vector<std::uint64_t> keys;
  keys.reserve(count);
  for (std::size_t word = 0; word < bits.size(); ++word) {
    for (std::uint64_t left = bits[word]; left != 0; left &= left - 1)
      keys.push_back(word * 64 + static_cast<std::uint64_t>(std::countr_zero(left)));
  }
  return keys;
}

}  // namespace fairring
