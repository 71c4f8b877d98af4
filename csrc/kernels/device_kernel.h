// One of our kernels (device_kernels.cu) on a CUDA device. It is loaded when this is made, which may wait until the
// device is idle: for ever, where a stream stands at a gate that only this thread's rank will open. So it must be made
// before. Any thread; immutable.
#pragma once

#include <string>

#include "base/cuda_runtime.h"

namespace fairring {

class DeviceKernel {
 public:
  // The device has no obstacle. Throws Failure.
  DeviceKernel(const char* name, int device);

  // Why the device can't run our kernels, in words; empty: it can. Does not begin to use it.
  static std::string obstacle(int device);

  unsigned blocksAtOnce() const { return blocksAtOnce_; }  // on the whole device
  // arguments: what the kernel takes, which is copied. Throws Failure.
  void launch(unsigned blocks, void* arguments, cudaStream_t stream) const;

 private:
  int device_;
  void* function_ = nullptr;
  unsigned blocksAtOnce_ = 1;
};

}  // namespace fairring
