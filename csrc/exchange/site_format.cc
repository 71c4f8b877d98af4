#include "exchange/site_format.h"

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/bf16.h"

namespace fairring {

namespace {

Bf16* bf16At(std::byte* encoded) { return reinterpret_cast<Bf16*>(encoded); }
const Bf16* bf16At(const std::byte* encoded) { return reinterpret_cast<const Bf16*>(encoded); }

std::vector<const Bf16*> bf16At(std::span<const std::byte* const> encoded) {
  std::vector<const Bf16*> arrays;
  arrays.reserve(encoded.size());
  for (const std::byte* const one : encoded) arrays.push_back(bf16At(one));
  return arrays;
}

constexpr std::array kSiteFormats{
    SiteFormat{
        .name = "bf16",
        .bytes = [](std::uint64_t elements) { return elements * sizeof(Bf16); },
        .encode = [](const float* values, std::byte* encoded, float* lost,
                     std::size_t elements) { roundToBf16(values, bf16At(encoded), lost, elements); },
        .decode = [](const std::byte* encoded, float* values,
                     std::size_t elements) { widen(bf16At(encoded), values, elements); },
        .addAround = [](float* own, std::span<const std::byte* const> before, std::span<const std::byte* const> after,
                        std::size_t elements) { fairring::addAround(own, bf16At(before), bf16At(after), elements); }},
};

}  // namespace

const SiteFormat* siteFormat(std::string_view name) {
  const auto* const found = std::ranges::find(kSiteFormats, name, &SiteFormat::name);
  return found == kSiteFormats.end() ? nullptr : found;
}

}  // namespace fairring
