#include "kernels/vector_body.h"

#include <algorithm>

namespace fairring {

VectorBody vectorBody(const void* out, std::span<const Input> inputs, std::uint64_t elements,
                      std::size_t elementBytes) {
  VectorBody body{.elements = elements, .perVector = static_cast<std::uint32_t>(kVectorBytes / elementBytes)};
  const auto within = [](const void* place) { return reinterpret_cast<std::uintptr_t>(place) % kVectorBytes; };
  const std::size_t beginning = within(out);
  if (std::ranges::any_of(inputs, [&](const Input& input) { return within(input.data) != beginning; })) return body;
  const std::uint64_t head = (kVectorBytes - beginning) % kVectorBytes / elementBytes;
  if (elements < head) return body;
  body.head = head;
  body.vectors = (elements - head) / body.perVector;
  return body;
}

}  // namespace fairring
