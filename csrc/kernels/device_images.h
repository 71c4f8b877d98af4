// Our kernels as they were compiled for CUDA devices when the module was built (device_images.py). Any thread.
#pragma once

#include <span>
#include <string_view>

namespace fairring {

struct DeviceImage {
  int generation;  // 90: sm_90
  bool isPtx;      // which the driver compiles for any device of that generation or later
  std::string_view bytes;
};

// Empty if there was no compiler for them.
std::span<const DeviceImage> deviceImages();

}  // namespace fairring
