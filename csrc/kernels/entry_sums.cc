#include "kernels/entry_sums.h"

#include "kernels/control.h"
#include "kernels/sum_types.h"

namespace fairring {

namespace {

struct SumAll {
  template <class Type, class Operation>
  void operator()(const EntrySums& sums) const {
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
};

}  // namespace

void sumEntries(DType dtype, const EntrySums& sums) {
  const StandardFloatingPoint standard;
  visitSum(dtype, SumAll(), sums);
}

}  // namespace fairring
