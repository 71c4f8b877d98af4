// For tests that need a CUDA device: skips them, with the reason, if there is none. Also memory on the device.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/cuda_error.h"
#include "base/cuda_memory.h"
#include "base/cuda_runtime.h"
#include "base/loaded_function.h"

namespace fairring {

constexpr int kDevice = 0;

// Why there is no device here; empty if there is one.
inline std::string whyNoDevice() {
  if (const std::string reason = LoadedFunction::whyMissing(); !reason.empty()) return reason;
  int devices = 0;
  const cudaError_t result = cudaGetDeviceCount(&devices);
  if (result == cudaSuccess && devices > 0) return "";
  return std::string("no CUDA device here: ") + cudaGetErrorString(result);
}

// Skips the test if there is no device; to be called in SetUp().
inline void skipWithoutDevice() {
  if (const std::string reason = whyNoDevice(); !reason.empty()) GTEST_SKIP() << reason;
}

using Bytes = std::vector<unsigned char>;

// On the default stream, which is not ordered with ours.
inline void copyAndWait(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  checkCuda(cudaMemcpyAsync(to, from, bytes, kind, nullptr), "cudaMemcpyAsync", kDevice);
  checkCuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", kDevice);
}

// A copy of the bytes on the device.
inline std::shared_ptr<std::byte> onDevice(const Bytes& bytes) {
  auto memory = deviceMemory(bytes.size() + 1, kDevice);
  copyAndWait(memory.get(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
  return memory;
}

inline Bytes onHost(const void* device, std::size_t bytes) {
  Bytes copy(bytes);
  copyAndWait(copy.data(), device, bytes, cudaMemcpyDeviceToHost);
  return copy;
}

}  // namespace fairring
