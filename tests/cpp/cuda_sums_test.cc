// The CUDA kernels: the conformance test of sums, and their limits. compute-sanitizer runs this too (make test-gpu).
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/cuda_stream.h"
#include "cuda_device.h"
#include "kernels/device_sums.h"
#include "kernels_sums_conformance.h"

namespace fairring {
namespace {

struct OnCuda {
  static constexpr std::array<std::uint64_t, 1> kThreads{0};  // as many as the kernels take
  static std::string obstacle() { return whyNoDevice(); }
  static void sum(SumCall& call) {
    std::vector<std::shared_ptr<std::byte>> device;
    for (const Bytes& one : call.memory) device.push_back(onDevice(one));
    std::vector<Input> inputs;
    for (std::size_t k = 0; k < call.inputs; ++k) inputs.push_back({device[k].get() + call.begins[k], call.scale});
    std::byte* const out = device[call.out].get();
    const CudaStream stream(kDevice);
    DeviceSums(kDevice).enqueue(call.dtype, out + call.begins[call.out], inputs, call.size, stream.get());
    stream.synchronize();
    call.memory[call.out] = onHost(out, call.memory[call.out].size());
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, DeviceSumsConformance, OnCuda);

class CudaSums : public testing::Test {
 protected:
  void SetUp() override { skipWithoutDevice(); }
};

TEST_F(CudaSums, TakeAsManyInputsAsTheySayAndRefuseMore) {
  const auto input = onDevice(Bytes(64));
  const auto out = onDevice(Bytes(64, 1));
  const DeviceSums sums(kDevice);
  const CudaStream stream(kDevice);
  std::vector<Input> inputs(DeviceSums::mostInputs(), {input.get()});
  sums.enqueue(DType::Float32, out.get(), inputs, 16, stream.get());
  stream.synchronize();
  EXPECT_EQ(onHost(out.get(), 64), Bytes(64));
  inputs.push_back({input.get()});
  EXPECT_THROW(sums.enqueue(DType::Float32, out.get(), inputs, 16, stream.get()), Failure);
}

// All patterns of the small formats, through the device's own conversions.
TEST_F(CudaSums, ReturnEveryBitPatternOfOneInputUnchanged) {
  for (const DType dtype : {DType::BFloat16, DType::Float16}) {
    const std::size_t bytes = bytesOf(dtype);
    const std::size_t patterns = std::size_t{1} << 8 * bytes;
    Bytes all(patterns * bytes);
    for (std::size_t i = 0; i < patterns; ++i) std::memcpy(all.data() + i * bytes, &i, bytes);
    const auto in = onDevice(all);
    const auto out = onDevice(Bytes(all.size()));
    const CudaStream stream(kDevice);
    const Input input{in.get()};
    DeviceSums(kDevice).enqueue(dtype, out.get(), {&input, 1}, patterns, stream.get());
    stream.synchronize();
    const Bytes got = onHost(out.get(), all.size());
    for (std::size_t i = 0; i < patterns; ++i) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, got.data() + i * bytes, bytes);
      if (reference::formatOf(dtype).isNan(i)) {
        ASSERT_TRUE(reference::formatOf(dtype).isNan(bits)) << name(dtype) << " " << i;
      } else {
        ASSERT_EQ(bits, i) << name(dtype);
      }
    }
  }
}

}  // namespace
}  // namespace fairring
