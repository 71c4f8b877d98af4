// reduce() on a CUDA device: the same operations, with the same meaning and the same bits, in memory of the device. One
// object per dtype, operation and device, loaded when it is made. It must be made before anything can keep the device
// busy that waits for this process, because loading may wait for the device to be idle.
// Any thread; immutable.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/reduce.h"

namespace fairring {

class DeviceReduction {
 public:
  // Makes `device` the thread's current device while it loads. Throws Failure.
  DeviceReduction(DType dtype, Op op, int device);

  static std::size_t mostInputs();

  // out[i] = inputs[0][i] op inputs[1][i] op ..., enqueued on a stream of this object's device. `out` may be one of the
  // inputs, and must not overlap one partly. The device must reach all of this memory; pinned memory of the host may be
  // among it. For one input in place, without scale or divisor, nothing is enqueued. If it throws Failure, nothing was
  // enqueued.
  void enqueue(void* out, std::span<const Input> inputs, std::uint64_t elements, std::int32_t divisor,
               cudaStream_t stream) const;

 private:
  DType dtype_;
  Op op_;
  int device_;
  const void* kernel_;
  unsigned mostBlocks_ = 1;  // as many as run at once
};

}  // namespace fairring
