// The work of a device's threads, run one thread after the other on the processor: the conformance test, and how it is
// divided into vectors. The launch itself and the device's own conversions are tested on a device (cuda_sums_test.cc).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#define FAIRRING_ISA processor
#include "kernels/device_thread.h"
#include "kernels_sums_conformance.h"

namespace fairring {
namespace {

template <class Type>
void runAllThreads(const SumArguments& arguments, std::uint64_t threads) {
  for (std::uint64_t thread = 0; thread < threads; ++thread) {
    processor::DeviceThread<Type>(arguments, thread, threads).run();
  }
}

struct ThreadByThread {
  static constexpr std::array<std::uint64_t, 4> kThreads{1, 3, 7, 256};
  static std::string obstacle() { return ""; }
  static void sum(SumCall& call) {
    std::vector<Input> inputs;
    for (std::size_t k = 0; k < call.inputs; ++k)
      inputs.push_back({call.memory[k].data() + call.begins[k], call.scale});
    unsigned char* const out = call.memory[call.out].data() + call.begins[call.out];
    SumArguments arguments{.out = out,
                           .body = vectorBody(out, inputs, call.size, bytesOf(call.dtype)),
                           .inputCount = static_cast<std::int32_t>(inputs.size())};
    std::ranges::copy(inputs, arguments.inputs);
    switch (call.dtype) {
      case DType::Float64: return runAllThreads<processor::Plain<double>>(arguments, call.threads);
      case DType::BFloat16: return runAllThreads<processor::Brain>(arguments, call.threads);
      case DType::Float16: return runAllThreads<processor::Half>(arguments, call.threads);
      default: return runAllThreads<processor::Plain<float>>(arguments, call.threads);
    }
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Kernels, DeviceSumsConformance, ThreadByThread);

TEST(VectorBody, TakesEveryElementOnce) {
  alignas(kVectorBytes) unsigned char memory[256] = {};
  for (const std::size_t bytes : {1, 2, 4, 8}) {
    for (std::size_t offset = 0; offset < kVectorBytes; offset += bytes) {
      for (std::uint64_t elements = 0; elements < 100 / bytes; ++elements) {
        const Input alike{memory + 64 + offset};
        const VectorBody body = vectorBody(memory + offset, {&alike, 1}, elements, bytes);
        std::vector<int> taken(elements);
        for (std::uint64_t i = 0; i < body.loose(); ++i) ++taken.at(body.placeOfLoose(i));
        for (std::uint64_t i = 0; i < body.vectors * body.perVector; ++i) ++taken.at(body.head + i);
        EXPECT_TRUE(std::ranges::all_of(taken, [](int times) { return times == 1; }));
        EXPECT_LT(body.loose(), 2 * body.perVector);
        if (body.vectors > 0) {
          EXPECT_EQ((offset + body.head * bytes) % kVectorBytes, 0);
        }
      }
    }
  }
}

TEST(VectorBody, HasNoVectorsWhereTheArraysBeginDifferently) {
  alignas(kVectorBytes) unsigned char memory[256] = {};
  const Input inputs[] = {{memory}, {memory + 4}};
  const VectorBody body = vectorBody(memory + 128, inputs, 16, 4);
  EXPECT_EQ(body.vectors, 0);
  EXPECT_EQ(body.loose(), 16);
}

}  // namespace
}  // namespace fairring
