// Whether Fairring or the stock backend of the tensor's device serves a call. That follows only from the device and the
// layout, so all ranks answer alike. Pure.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace fairring {

enum class Server : std::uint8_t { Fairring, Stock };

// Operations and dtypes make no difference: those that Fairring can't reduce are undefined in the stock backend too.
Server serverOfReduction(at::DeviceType device, at::Layout layout);
bool isOurs(const std::vector<at::Tensor>& tensors);    // all of them, of which there are some
bool areOnCpu(const std::vector<at::Tensor>& tensors);  // all of them
// Throws c10::ValueError if one on the CPU is sparse: only all-reduces take these. `call`: the user's name of the call.
void refuseSparse(const char* call, const std::vector<at::Tensor>& tensors);

}  // namespace fairring
