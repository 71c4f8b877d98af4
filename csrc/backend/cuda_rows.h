// A sparse tensor of a CUDA device after our kernels have summed its rows of equal keys (kernels/device_rows.h). Only
// in builds with CUDA; in others never called.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/reduce.h"

namespace fairring {

// On the current stream, for which the host waits once. Its sparse dimensions are one, of all rows that the tensor
// could have. dtype: that of its elements, or of the parts of complex ones. Its indices lie inside. Throws c10::Error.
at::Tensor mergedRows(const at::Tensor& tensor, DType dtype);

}  // namespace fairring
