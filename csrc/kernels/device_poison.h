// Poisons the results of a call that has failed on a CUDA device: fills them with ones, which floats of every kind read
// as not a number. Otherwise garbage would look like a result, and a program whose host runs ahead would save it. One
// kernel for all types, loaded when this is made (device_kernel.h).
// Any thread; immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/device_kernel.h"

namespace fairring {

class DevicePoison {
 public:
  explicit DevicePoison(int device) : kernel_("fairring_poison", device) {}  // throws Failure

  // Fills the memory if *failed, in pinned memory, is not zero when the stream comes to it. If it is zero this takes no
  // longer than a launch. Throws Failure.
  void enqueue(const std::uint64_t* failed, std::span<const std::span<std::byte>> results, cudaStream_t stream) const;

 private:
  DeviceKernel kernel_;
};

}  // namespace fairring
