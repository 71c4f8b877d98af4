// Says whether Fairring or the stock backend of the tensor's device serves a call. It follows from the device and the
// layout alone, so all ranks answer alike. Pure.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace fairring {

enum class Server : std::uint8_t { Fairring, Stock };

// Operations and dtypes make no difference: what Fairring can't reduce is not defined in the stock backend either.
Server serverOfReduction(at::DeviceType device, at::Layout layout);
bool isOurs(const std::vector<at::Tensor>& tensors);    // all of them, of which there are some
bool areOnCpu(const std::vector<at::Tensor>& tensors);  // all of them
// Throws c10::ValueError where one on the CPU is sparse: all-reduces alone take these. `call`: what its user called.
void refuseSparse(const char* call, const std::vector<at::Tensor>& tensors);

}  // namespace fairring
