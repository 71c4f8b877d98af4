// The CUDA kernels against reduce() on the processor: every dtype and alignment, bit by bit; any NaN equals any other.
// compute-sanitizer runs this too (make test-gpu).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/cuda_stream.h"
#include "cuda_device.h"
#include "kernels/device_sums.h"
#include "kernels_elements.h"
#include "kernels_reference.h"

namespace fairring {
namespace {

constexpr std::size_t kDeviceSizes[] = {0, 1, 7, 16, 17, 1023, 4097, 100003};

constexpr DType kSummed[] = {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16};

struct Case {
  DType dtype;
  std::size_t inputs = 2;
  std::size_t size = 0;
  std::vector<std::size_t> offsets{0};  // in elements, of the inputs one after the other and of the output
  double scale = 1.0;
};

class CudaSum : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override { skipWithoutDevice(); }

  static Bytes randomBytes(std::size_t count, unsigned seed) {
    std::mt19937_64 random(seed);
    Bytes bytes(count);
    for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
    return bytes;
  }

  static void expectAsOnTheProcessor(const Case& given) {
    const DType dtype = given.dtype;
    const std::size_t bytes = bytesOf(dtype);
    const auto offset = [&](std::size_t k) { return given.offsets[k % given.offsets.size()] * bytes; };
    std::vector<Bytes> host;
    std::vector<std::shared_ptr<std::byte>> device;
    std::vector<Input> here;
    std::vector<Input> there;
    for (std::size_t k = 0; k < given.inputs; ++k) {
      host.push_back(randomBytes(offset(k) + given.size * bytes, static_cast<unsigned>(k)));
      device.push_back(onDevice(host.back()));
    }
    for (std::size_t k = 0; k < given.inputs; ++k) {
      here.push_back({host[k].data() + offset(k), given.scale});
      there.push_back({device[k].get() + offset(k), given.scale});
    }
    Bytes expected(given.size * bytes);
    if (given.size > 0) reduce({.dtype = dtype}, expected.data(), here, given.size);
    const auto out = onDevice(Bytes(offset(given.inputs) + given.size * bytes));
    const CudaStream stream(kDevice);
    DeviceSums(kDevice).enqueue(dtype, out.get() + offset(given.inputs), there, given.size, stream.get());
    stream.synchronize();
    expectEqual(dtype, onHost(out.get() + offset(given.inputs), given.size * bytes), expected);
  }

  static void expectEqual(DType dtype, const Bytes& got, const Bytes& expected) {
    const std::size_t bytes = bytesOf(dtype);
    for (std::size_t at = 0; at < got.size(); at += bytes) {
      std::uint64_t one = 0;
      std::uint64_t other = 0;
      std::memcpy(&one, got.data() + at, bytes);
      std::memcpy(&other, expected.data() + at, bytes);
      if (isFloat(dtype) && reference::formatOf(dtype).isNan(one) && reference::formatOf(dtype).isNan(other)) continue;
      ASSERT_EQ(one, other) << "element " << at / bytes;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Cuda, CudaSum, testing::ValuesIn(kSummed),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(CudaSum, GivesTheProcessorsBits) {
  for (const std::size_t inputs : {1, 2, 3, 8}) {
    for (const std::size_t size : kDeviceSizes) {
      expectAsOnTheProcessor({.dtype = GetParam(), .inputs = inputs, .size = size});
    }
  }
}

TEST_P(CudaSum, ScalesAsTheProcessorDoes) {
  for (const std::size_t inputs : {1, 2, 5}) {
    expectAsOnTheProcessor({.dtype = GetParam(), .inputs = inputs, .size = 4097, .scale = 1.0 / 3});
  }
}

TEST_P(CudaSum, TakesAnyAlignment) {
  for (std::size_t offset = 0; offset < 16; ++offset) {
    expectAsOnTheProcessor({.dtype = GetParam(), .inputs = 3, .size = 1021, .offsets = {offset}});
    expectAsOnTheProcessor({.dtype = GetParam(), .inputs = 3, .size = 1021, .offsets = {offset, 0, 1}});
  }
}

TEST_P(CudaSum, MayWriteOverAnyOneOfItsInputs) {
  constexpr std::size_t kSize = 100003;
  constexpr std::size_t kInputs = 3;
  const std::size_t bytes = kSize * bytesOf(GetParam());
  const DeviceSums sums(kDevice);
  for (std::size_t inPlace = 0; inPlace < kInputs; ++inPlace) {
    std::vector<Bytes> host;
    std::vector<std::shared_ptr<std::byte>> device;
    std::vector<Input> here;
    std::vector<Input> there;
    for (std::size_t k = 0; k < kInputs; ++k) host.push_back(randomBytes(bytes, static_cast<unsigned>(k)));
    for (const Bytes& one : host) here.push_back({one.data()});
    for (const Bytes& one : host) device.push_back(onDevice(one));
    for (const auto& one : device) there.push_back({one.get()});
    Bytes expected(bytes);
    reduce({.dtype = GetParam()}, expected.data(), here, kSize);
    const CudaStream stream(kDevice);
    sums.enqueue(GetParam(), device[inPlace].get(), there, kSize, stream.get());
    stream.synchronize();
    expectEqual(GetParam(), onHost(device[inPlace].get(), bytes), expected);
  }
}

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
