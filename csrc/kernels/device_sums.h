// Sums of floats on a CUDA device: reduce() with the same meaning and the same bits, in memory of the device. For the
// dtypes of gradients alone, as sums, averages and products with a factor; other calls are NCCL's. Kernels are loaded
// when this is made (device_kernel.h). Any thread; immutable.
#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "kernels/device_kernel.h"
#include "kernels/reduce.h"

namespace fairring {

class DeviceSums {
 public:
  explicit DeviceSums(int device);  // throws Failure

  static bool has(const Reduction& reduction);
  static std::size_t mostInputs();

  // out[i] = inputs[0][i] + inputs[1][i] + ..., enqueued on a stream of the device. `out` may be one of the inputs, and
  // must not overlap one partly. The device must reach all of this memory; pinned memory of the host may be among it.
  // For one input in place, without scale, nothing is enqueued. If it throws Failure, nothing was enqueued.
  void enqueue(DType dtype, void* out, std::span<const Input> inputs, std::uint64_t elements,
               cudaStream_t stream) const;

 private:
  std::map<DType, DeviceKernel> kernels_;
};

}  // namespace fairring
