// Sums by way of the whole table, against reduce() of each row.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/table_sums.h"
#include "kernels_elements.h"
#include "keyed_rows.h"

namespace fairring {
namespace {

class SumsByTable : public testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Kernels, SumsByTable, testing::ValuesIn(kDTypes),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(SumsByTable, HaveTheBitsOfReducingRowByRow) {
  unsigned seed = 0;
  for (const std::uint64_t elements : {0, 1, 2, 3, 16}) {
    for (const std::size_t entries : {0, 1, 2, 5, 200}) {
      for (const std::uint64_t keysBelow : {1, 50, 64, 65}) {
        const KeyedRows rows(GetParam(), elements, entries, keysBelow, ++seed);
        const std::vector<std::int64_t> keys(rows.keys.begin(), rows.keys.end());
        std::vector<unsigned char> sums;
        const auto there = sumByTable(GetParam(),
                                      {.keys = keys,
                                       .values = reinterpret_cast<const std::byte*>(rows.values.data()),
                                       .keysBelow = keysBelow,
                                       .rowElements = elements},
                                      [&](std::uint64_t found) {
                                        sums.resize(found * rows.rowBytes());
                                        return reinterpret_cast<std::byte*>(sums.data());
                                      });
        EXPECT_EQ(there, rows.unique);
        ASSERT_EQ(sums.size(), rows.sums.size());
        EXPECT_TRUE(rows.areTheSums(sums.data())) << entries << " entries of " << elements << " elements";
      }
    }
  }
}

}  // namespace
}  // namespace fairring
