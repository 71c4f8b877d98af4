// Who serves a call: Fairring, or the stock backend of the tensor's device. It follows from the device and the layout
// alone, so all ranks answer alike. Pure.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fairring {

enum class Server : std::uint8_t { Fairring, Stock };

// Operations and dtypes make no difference: what Fairring can't reduce is not defined in the stock backend either.
Server serverOfReduction(at::DeviceType device, at::Layout layout);

}  // namespace fairring
