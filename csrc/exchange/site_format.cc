#include "exchange/site_format.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "kernels/bf16.h"
#include "kernels/quantized.h"
#include "plan/grain.h"

namespace fairring {

namespace {

template <Quantization Kind>
constexpr SiteFormat quantized(std::string_view name) {
  return {.name = name,
          .blockElements = kQuantizedBlock,
          .bytes = [](std::uint64_t elements) -> std::uint64_t { return quantizedBytes(Kind, elements); },
          .encode = [](const float* values, std::byte* encoded, float* lost,
                       std::size_t elements) { quantize(Kind, values, encoded, lost, elements); },
          .decode = [](const std::byte* encoded, float* values,
                       std::size_t elements) { dequantize(Kind, encoded, values, elements); }};
}

constexpr std::array kSiteFormats{
    SiteFormat{
        .name = "bf16",
        .blockElements = 1,
        .bytes = [](std::uint64_t elements) { return elements * sizeof(Bf16); },
        .encode = [](const float* values, std::byte* encoded, float* lost,
                     std::size_t elements) { roundToBf16(values, reinterpret_cast<Bf16*>(encoded), lost, elements); },
        .decode = [](const std::byte* encoded, float* values,
                     std::size_t elements) { widen(reinterpret_cast<const Bf16*>(encoded), values, elements); }},
    quantized<Quantization::Int8>("int8"),
    quantized<Quantization::Int4>("int4"),
};

static_assert(std::ranges::all_of(kSiteFormats, [](const SiteFormat& format) {
  return format.grainsTogether() <= kMostGrainsTogether;
}));

}  // namespace

const SiteFormat* siteFormat(std::string_view name) {
  const auto* const found = std::ranges::find(kSiteFormats, name, &SiteFormat::name);
  return found == kSiteFormats.end() ? nullptr : found;
}

std::string unknownSiteFormat(std::string_view name) {
  return concat("there is no format ", name, " between sites, but ", joined(kSiteFormats, ", ", &SiteFormat::name));
}

}  // namespace fairring
