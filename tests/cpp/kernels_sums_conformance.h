// The contract of sums on a device: the bits that reduce() gives on the processor, for every dtype that a device sums;
// any NaN equals any other. An implementation is a type with
//   static std::string obstacle();     why it can't run here; empty if it can
//   static constexpr ... kThreads      how many threads sum(), one number after the other
//   static void sum(SumCall&);         writes the output's memory
// and is put to the test by INSTANTIATE_TYPED_TEST_SUITE_P(Name, DeviceSumsConformance, Type).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels_elements.h"
#include "kernels_reference.h"

namespace fairring {

struct SumCall {
  DType dtype;
  std::size_t inputs;
  std::size_t size;  // elements
  double scale;
  std::size_t out;  // the memory of the output, which may be one of the inputs'
  std::vector<std::vector<unsigned char>> memory;
  std::vector<std::size_t> begins;  // bytes before the first element, in each memory
  std::uint64_t threads = 0;
};

struct SumCase {
  std::size_t inputs = 2;
  std::size_t size = 0;
  std::vector<std::size_t> offsets{0};  // in elements, of the inputs one after the other and of the output
  double scale = 1.0;
  bool isInPlace = false;  // on any one of the inputs
};

template <class Device>
class DeviceSumsConformance : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string obstacle = Device::obstacle();
    if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  }

  static void expectAsOnTheProcessor(const SumCase& given) {
    for (const DType dtype : {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16}) {
      for (std::size_t out = given.isInPlace ? 0 : given.inputs; out < given.inputs + (given.isInPlace ? 0 : 1);
           ++out) {
        SCOPED_TRACE(::testing::Message() << name(dtype) << ", " << given.inputs << " inputs of " << given.size);
        expectBitsOf(callOf(given, dtype, out));
      }
    }
  }

 private:
  static constexpr std::size_t kGuardBytes = 32;

  static SumCall callOf(const SumCase& given, DType dtype, std::size_t out) {
    SumCall call{dtype, given.inputs, given.size, given.scale, out, {}, {}};
    for (std::size_t k = 0; k <= std::max(out, given.inputs - 1); ++k) {
      call.begins.push_back(given.offsets[k % given.offsets.size()] * bytesOf(dtype));
      auto& bytes = call.memory.emplace_back(call.begins[k] + given.size * bytesOf(dtype) + kGuardBytes);
      std::mt19937 random(static_cast<unsigned>(k));
      std::ranges::generate(bytes, [&] { return static_cast<unsigned char>(random()); });
    }
    return call;
  }

  static void expectBitsOf(const SumCall& given) {
    std::vector<Input> inputs;
    for (std::size_t k = 0; k < given.inputs; ++k)
      inputs.push_back({given.memory[k].data() + given.begins[k], given.scale});
    Elements expected(given.dtype, given.size);
    if (given.size > 0) reduce({.dtype = given.dtype}, expected.data(), inputs, given.size);
    for (const std::uint64_t threads : Device::kThreads) {
      SumCall call = given;
      call.threads = threads;
      Device::sum(call);
      expectOutput(call, expected, given.memory[given.out]);
    }
  }

  static void expectOutput(const SumCall& call, const Elements& expected, std::vector<unsigned char> before) {
    const std::size_t bytes = bytesOf(call.dtype);
    const std::vector<unsigned char>& memory = call.memory[call.out];
    const reference::Format format = reference::formatOf(call.dtype);
    for (std::size_t i = 0; i < call.size; ++i) {
      const std::size_t at = call.begins[call.out] + i * bytes;
      std::uint64_t bits = 0;
      std::memcpy(&bits, memory.data() + at, bytes);
      std::memcpy(before.data() + at, &bits, bytes);
      if (format.isNan(bits) && format.isNan(expected.get(i))) continue;
      ASSERT_EQ(bits, expected.get(i)) << "element " << i << ", " << call.threads << " threads";
    }
    EXPECT_EQ(memory, before) << "written around the output";
  }
};
TYPED_TEST_SUITE_P(DeviceSumsConformance);

TYPED_TEST_P(DeviceSumsConformance, GivesTheProcessorsBits) {
  for (const std::size_t inputs : {1, 2, 3, 4, 5, 8}) {
    for (const std::size_t size : kSizes) TestFixture::expectAsOnTheProcessor({.inputs = inputs, .size = size});
  }
  TestFixture::expectAsOnTheProcessor({.inputs = 3, .size = 100'003});
}

TYPED_TEST_P(DeviceSumsConformance, ScalesAsTheProcessorDoes) {
  for (const std::size_t inputs : {1, 2, 5, 8})
    TestFixture::expectAsOnTheProcessor({.inputs = inputs, .size = 4097, .scale = 1.0 / 3});
}

TYPED_TEST_P(DeviceSumsConformance, TakesAnyAlignment) {
  for (std::size_t offset = 0; offset < 16; ++offset) {
    for (const std::size_t size : {0, 1, 15, 16, 17, 1021}) {
      TestFixture::expectAsOnTheProcessor({.inputs = 3, .size = size, .offsets = {offset}});
      TestFixture::expectAsOnTheProcessor({.inputs = 3, .size = size, .offsets = {offset, 0, 1}});
    }
  }
}

TYPED_TEST_P(DeviceSumsConformance, MayWriteOverAnyOneOfItsInputs) {
  for (const std::size_t size : {517, 100'003})
    TestFixture::expectAsOnTheProcessor({.inputs = 4, .size = size, .offsets = {0, 1, 2, 3}, .isInPlace = true});
  TestFixture::expectAsOnTheProcessor({.inputs = 3, .size = 4097, .isInPlace = true});
}

REGISTER_TYPED_TEST_SUITE_P(DeviceSumsConformance, GivesTheProcessorsBits, ScalesAsTheProcessorDoes, TakesAnyAlignment,
                            MayWriteOverAnyOneOfItsInputs);

}  // namespace fairring
