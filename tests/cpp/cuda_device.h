// For tests that need a CUDA device: skips them, with the reason, if there is none. Also memory on the device.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "base/cuda_error.h"
#include "base/cuda_memory.h"

namespace fairring {

constexpr int kDevice = 0;

// Skips the test if there is no device; to be called in SetUp().
inline void skipWithoutDevice() {
  int devices = 0;
  const cudaError_t result = cudaGetDeviceCount(&devices);
  if (result != cudaSuccess || devices == 0) {
    GTEST_SKIP() << "no CUDA device here: " << cudaGetErrorString(result);
  }
}

using Bytes = std::vector<unsigned char>;

// A copy of the bytes on the device. Such a copy may still be under way when its call returns, and streams that are not
// ordered with the legacy default stream would not wait for it.
inline std::shared_ptr<std::byte> onDevice(const Bytes& bytes) {
  auto memory = deviceMemory(bytes.size() + 1, kDevice);
  checkCuda(cudaMemcpy(memory.get(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "cudaMemcpy", kDevice);
  checkCuda(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize", kDevice);
  return memory;
}

inline Bytes onHost(const void* device, std::size_t bytes) {
  Bytes copy(bytes);
  checkCuda(cudaMemcpy(copy.data(), device, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy", kDevice);
  return copy;
}

}  // namespace fairring
