// Sums of entries in one pass, against reduce() of each.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/entry_sums.h"
#include "kernels_elements.h"
#include "keyed_rows.h"

namespace fairring {
namespace {

class SumsOfEntries : public testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Kernels, SumsOfEntries, testing::ValuesIn(kDTypes),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(SumsOfEntries, HaveTheBitsOfReducingRowByRow) {
  unsigned seed = 0;
  for (const std::uint64_t elements : {0, 1, 2, 3, 16}) {
    for (const std::size_t entries : {0, 1, 2, 5, 200}) {
      const KeyedRows rows(GetParam(), elements, entries, 50, ++seed);
      std::vector<std::uint32_t> begins(rows.begins);
      begins.push_back(static_cast<std::uint32_t>(entries));
      std::vector<unsigned char> sums(rows.sums.size());
      sumEntries(GetParam(), {.out = reinterpret_cast<std::byte*>(sums.data()),
                              .values = reinterpret_cast<const std::byte*>(rows.values.data()),
                              .entries = rows.order,
                              .begins = begins,
                              .rowElements = elements});
      EXPECT_TRUE(rows.areTheSums(sums.data())) << entries << " entries of " << elements << " elements";
    }
  }
}

}  // namespace
}  // namespace fairring
