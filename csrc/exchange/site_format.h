// The formats in which sums of Float32 may cross between sites, as compressed_body.h uses them. Each is a row of one
// table: a new format is its size, an encoder, a decoder, a sum, and that row. Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace fairring {

struct SiteFormat {
  std::string_view name;
  // The size of so many elements: at most half of what they take as Float32. If all parts of an array but the last have
  // a multiple of 16 elements, their sizes add up to the array's.
  std::uint64_t (*bytes)(std::uint64_t elements);
  // lost[i] += what rounding takes of values[i]; null: that is not wanted. The encoded array may lie in the first half
  // of the values.
  void (*encode)(const float* values, std::byte* encoded, float* lost, std::size_t elements);
  // The encoded array may lie in the second half of the values.
  void (*decode)(const std::byte* encoded, float* values, std::size_t elements);
  // own[i] = before[0][i] + ... + own[i] + after[0][i] + ..., in fp32 and in this order. They share no memory.
  void (*addAround)(float* own, std::span<const std::byte* const> before, std::span<const std::byte* const> after,
                    std::size_t elements);
};

// Null: no format has this name.
const SiteFormat* siteFormat(std::string_view name);

}  // namespace fairring
