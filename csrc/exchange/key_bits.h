// Keys as a bit each: bit k % 64 of word k / 64 stands for key k. Pure: any thread, no state.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fairring {

void setKeys(std::span<std::uint64_t> bits, std::span<const std::uint64_t> keys);
std::vector<std::uint64_t> keysIn(std::span<const std::uint64_t> bits);  // ascending

}  // namespace fairring
