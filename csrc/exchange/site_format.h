// The formats in which sums of Float32 may cross between sites, as compressed_body.h uses them. Each is a row of one
// table: a new format is its size, an encoder, a decoder, and that row. Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "plan/grain.h"

namespace fairring {

struct SiteFormat {
  std::string_view name;
  // So many elements are encoded together. An array is cut between blocks alone, and its parts' sizes add up to its
  // own.
  std::uint64_t blockElements;
  // The size of so many elements: at most half of what they take as Float32.
  std::uint64_t (*bytes)(std::uint64_t elements);
  // lost[i] += what rounding takes of values[i]; null: that is not wanted. The encoded array may lie in the first bytes
  // of the values' memory.
  void (*encode)(const float* values, std::byte* encoded, float* lost, std::size_t elements);
  // The encoded array may lie in the last bytes of the values' memory. Its bytes may be any.
  void (*decode)(const std::byte* encoded, float* values, std::size_t elements);

  // The grains of a slice between which it is not cut.
  constexpr std::uint64_t grainsTogether() const { return ceilOf(blockElements * sizeof(float), kGrainBytes); }
};

// Null: no format has this name.
const SiteFormat* siteFormat(std::string_view name);
// The sentence about such a name, with those that there are.
std::string unknownSiteFormat(std::string_view name);

}  // namespace fairring
