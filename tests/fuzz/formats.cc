// Fuzzes the bytes of sums that cross between sites in a format. Any bytes become as many floats as are expected, none
// is read or written outside of its array, and what encoding these floats loses is finite. The input: one byte for the
// format, two for the number of elements, then the encoded ones, as far as there are bytes.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <span>
#include <vector>

#include "exchange/site_format.h"

using namespace fairring;

namespace {

constexpr std::array kNames{"bf16", "int8", "int4"};
constexpr std::size_t kHead = 3;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < kHead) return 0;
  const SiteFormat& format = *siteFormat(kNames.at(data[0] % kNames.size()));
  const std::size_t elements = data[1] + (data[2] % 16U) * 256U;
  // Memory of exactly these sizes: the sanitizer sees what goes beyond.
  std::vector<std::byte> encoded(format.bytes(elements));
  const auto given = std::as_bytes(std::span(data, size)).subspan(kHead);
  std::ranges::copy(given.first(std::min(encoded.size(), given.size())), encoded.begin());
  std::vector<float> values(elements);
  format.decode(encoded.data(), values.data(), elements);
  std::vector<float> lost(elements, 0.0F);
  format.encode(values.data(), encoded.data(), lost.data(), elements);
  if (!std::ranges::all_of(lost, [](float each) { return std::isfinite(each); })) std::abort();
  return 0;
}
