// Sums of packed contributions, each of which has some of the rows. A contribution that lacks a row is left out of its
// sum, and a row of a single contribution is a copy. The order of summation is that of the inputs, as in any reduction;
// if they stand in groups, each group is summed first (plan/layout.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "exchange/job.h"
#include "exchange/row_set.h"
#include "kernels/reduce.h"

namespace fairring {

struct RowInput {
  const RowSet* rowSet;
  const std::byte* data;  // its first byte of the range
  double scale = 1.0;
};

struct RowSum {
  Reduction reduction;
  Range range;               // of the call
  std::byte* out = nullptr;  // for the range's first byte
  bool packed = false;       // rows that no input has take no place there
  int groups = 0;            // into which the inputs are divided, as Topology has them
  std::vector<RowInput> inputs = {};
};

Job jobOf(std::vector<RowSum> sums);

}  // namespace fairring
