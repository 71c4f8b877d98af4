#include "kernels/entry_sums.h"

#include "kernels/control.h"

// Compiled once: what it waits for is memory.
#define FAIRRING_ISA any_processor
#include "kernels/elements.h"
#include "kernels/operations.h"

namespace fairring {

namespace {

template <class Type, class Operation>
void sumAll(const EntrySums& sums) {
  using Element = Type::Element;
  const auto* const values = reinterpret_cast<const Element*>(sums.values);
  auto* out = reinterpret_cast<Element*>(sums.out);
  for (std::size_t sum = 0; sum + 1 < sums.begins.size(); ++sum) {
    const auto entries = sums.entries.subspan(sums.begins[sum], sums.begins[sum + 1] - sums.begins[sum]);
    for (std::uint64_t i = 0; i < sums.rowElements; ++i) {
      auto held = Type::widen(values[std::uint64_t{entries.front()} * sums.rowElements + i]);
      for (const std::uint64_t entry : entries.subspan(1))
        held = Operation{}(held, Type::widen(values[entry * sums.rowElements + i]));
      *out++ = Type::narrow(held);
    }
  }
}

}  // namespace

void sumEntries(DType dtype, const EntrySums& sums) {
  using namespace any_processor;
  const StandardFloatingPoint standard;
  switch (dtype) {
    case DType::Float32: return sumAll<Plain<float>, Add>(sums);
    case DType::Float64: return sumAll<Plain<double>, Add>(sums);
    case DType::BFloat16: return sumAll<Brain, Add>(sums);
    case DType::Float16: return sumAll<Half, Add>(sums);
    case DType::Float8E4M3: return sumAll<E4M3, Add>(sums);
    case DType::Float8E5M2: return sumAll<E5M2, Add>(sums);
    case DType::Int8:
    case DType::UInt8: return sumAll<Plain<std::uint8_t>, Add>(sums);
    case DType::Int16:
    case DType::UInt16: return sumAll<Plain<std::uint16_t>, Add>(sums);
    case DType::Int32:
    case DType::UInt32: return sumAll<Plain<std::uint32_t>, Add>(sums);
    case DType::Int64:
    case DType::UInt64: return sumAll<Plain<std::uint64_t>, Add>(sums);
    case DType::Bool: return sumAll<Logical, Or>(sums);
  }
}

}  // namespace fairring
