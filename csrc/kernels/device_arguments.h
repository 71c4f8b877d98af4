// What the kernels are launched with, on the host and on the device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/vector_body.h"

namespace fairring {

constexpr std::size_t kMostDeviceInputs = 128;  // so that they fit into a kernel's parameters of 4 KiB
constexpr int kDeviceThreads = 256;             // of a block

struct SumArguments {
  void* out = nullptr;
  VectorBody body;
  std::int32_t inputCount = 0;
  Input inputs[kMostDeviceInputs] = {};
};
static_assert(sizeof(SumArguments) <= 4096);

}  // namespace fairring
