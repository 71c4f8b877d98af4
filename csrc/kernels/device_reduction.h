// reduce() on a CUDA device: the same operations, with the same meaning and the same bits, in memory of the device.
// One object per dtype, operation and device, loaded when it is made. That is to be before anything can keep the device
// busy that waits for this process: loading may wait for the device to be idle.
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
  // Makes `device` the thread's current one while it loads. Throws Failure.
  DeviceReduction(DType dtype, Op op, int device);

  static std::size_t mostInputs();

  // out[i] = inputs[0][i] op inputs[1][i] op ..., enqueued on a stream of this object's device. `out` may be one of the
  // inputs, and overlaps none partly. The device reaches all of this memory; pinned memory of the host may be among it.
  // One input that nothing scales or divides, in place: nothing to do, and nothing is enqueued. Throws Failure, and has
  // enqueued nothing then.
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
