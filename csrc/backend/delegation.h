// Who serves a call: Fairring, or the stock backend of the tensor's device. It follows from the operation, the dtype,
// the device and the layout alone, so all ranks answer alike. Pure.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "kernels/reduce.h"

namespace fairring {

enum class Server : std::uint8_t { Fairring, Stock };

Server serverOfAllReduce(c10d::ReduceOp::RedOpType op, at::ScalarType dtype, at::DeviceType device, at::Layout layout);

// Our name for the dtype. Throws Failure(Usage) for those that we do not sum.
DType ownDType(at::ScalarType dtype);

}  // namespace fairring
