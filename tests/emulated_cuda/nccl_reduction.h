// Sums and the like of NCCL's dtypes: 16-bit floats in fp32, rounded once. Pure.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <vector>

namespace emulated {

std::size_t bytesOf(ncclDataType_t type);
// operation: one of NCCL's, or ncclNumOps for the sum of products with the factor.
void reduce(void* out, const std::vector<const std::byte*>& inputs, std::size_t elements, ncclDataType_t type,
            int operation, double factor);
double readFactor(const void* scalar, ncclDataType_t type);

}  // namespace emulated
