// A kernel is loaded when it is first needed, and its first launch may wait until the device is idle: for ever, where a
// stream stands at a gate that only this thread's rank will open. So whoever needs one sees to it before. Only in
// builds with CUDA. Any thread.
#pragma once

namespace fairring {

// kernel: the address of a __global__ function. Throws Failure.
void loadKernel(const void* kernel, int device);

}  // namespace fairring
