#include "kernels/table_sums.h"

#include <type_traits>

#include "kernels/control.h"
#include "kernels/key_bits.h"
#include "kernels/sum_types.h"

namespace fairring {

namespace {

using MemoryFor = std::function<std::byte*(std::uint64_t rows)>;

struct SumByTable {
  template <class Type, class Operation>
  std::vector<std::uint64_t> operator()(const TableEntries& entries, const MemoryFor& memoryFor) const {
    using Element = Type::Element;
    using Wide = Type::Wide;
    constexpr auto kNothing = static_cast<Wide>(std::is_floating_point_v<Wide> ? -0.0 : 0);  // -0 + x is x for every x
    const std::uint64_t elements = entries.rowElements;
    std::vector<Wide> table(entries.keysBelow * elements, kNothing);
    KeyBits there(wordsFor(entries.keysBelow));
    const auto* value = reinterpret_cast<const Element*>(entries.values);
    for (const std::int64_t signedKey : entries.keys) {
      const auto key = static_cast<std::uint64_t>(signedKey);
      setKey(there, key);
      Wide* const sum = table.data() + key * elements;
      for (std::uint64_t i = 0; i < elements; ++i) sum[i] = Operation{}(sum[i], Type::widen(*value++));
    }
    std::vector<std::uint64_t> keys = keysIn(there);
    auto* out = reinterpret_cast<Element*>(memoryFor(keys.size()));
    for (const std::uint64_t key : keys) {
      const Wide* const sum = table.data() + key * elements;
      for (std::uint64_t i = 0; i < elements; ++i) *out++ = Type::narrow(sum[i]);
    }
    return keys;
  }
};

}  // namespace

std::vector<std::uint64_t> sumByTable(DType dtype, const TableEntries& entries, const MemoryFor& memoryFor) {
  const StandardFloatingPoint standard;
  return visitSum(dtype, SumByTable(), entries, memoryFor);
}

}  // namespace fairring
