// The work of a device's threads, run one thread after the other on the processor, against reduce(): every dtype
// that a device sums, any number of inputs and threads, any alignment. The launch itself and the device's own
// conversions are tested on a device (tests/gpu).
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#define FAIRRING_ISA processor
#include "kernels/device_thread.h"
#include "kernels_elements.h"
#include "kernels_reference.h"

namespace fairring {
namespace {

constexpr DType kSummed[] = {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16};

template <class Type>
void runAllThreads(const SumArguments& arguments, std::uint64_t threads) {
  for (std::uint64_t thread = 0; thread < threads; ++thread) {
    processor::DeviceThread<Type>(arguments, thread, threads).run();
  }
}

void sum(DType dtype, void* out, const std::vector<Input>& inputs, std::uint64_t elements, std::uint64_t threads) {
  SumArguments arguments{.out = out,
                         .body = vectorBody(out, inputs, elements, bytesOf(dtype)),
                         .inputCount = static_cast<std::int32_t>(inputs.size())};
  std::ranges::copy(inputs, arguments.inputs);
  switch (dtype) {
    case DType::Float64: return runAllThreads<processor::Plain<double>>(arguments, threads);
    case DType::BFloat16: return runAllThreads<processor::Brain>(arguments, threads);
    case DType::Float16: return runAllThreads<processor::Half>(arguments, threads);
    default: return runAllThreads<processor::Plain<float>>(arguments, threads);
  }
}

// Memory whose elements begin that many elements after a boundary of a vector.
class Aligned {
 public:
  Aligned(DType dtype, std::size_t count, std::size_t offset)
      : dtype_(dtype),
        offset_(offset * bytesOf(dtype)),
        memory_(offset_ + count * bytesOf(dtype) + kGuard, kUntouched) {}

  unsigned char* data() { return memory_.data() + offset_; }
  std::uint64_t get(std::size_t i) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, data() + i * bytesOf(dtype_), bytesOf(dtype_));
    return bits;
  }
  bool guardsAreWhole() const {
    const auto untouched = [](unsigned char byte) { return byte == kUntouched; };
    return std::all_of(memory_.begin(), memory_.begin() + static_cast<std::ptrdiff_t>(offset_), untouched) &&
           std::all_of(memory_.end() - kGuard, memory_.end(), untouched);
  }

 private:
  static constexpr std::ptrdiff_t kGuard = 32;
  static constexpr unsigned char kUntouched = 0xa5;

  DType dtype_;
  std::size_t offset_;
  std::vector<unsigned char> memory_;
};

class DeviceThreads : public testing::TestWithParam<DType> {
 protected:
  static void fill(Aligned& memory, std::size_t bytes, unsigned seed) {
    std::mt19937 random(seed);
    for (std::size_t i = 0; i < bytes; ++i) memory.data()[i] = static_cast<unsigned char>(random());
  }

  void expectAsOnTheProcessor(DType dtype, std::size_t inputs, std::size_t size,
                              const std::vector<std::size_t>& offsets, std::uint64_t threads, double scale = 1.0) {
    std::vector<Aligned> memory;
    for (std::size_t k = 0; k <= inputs; ++k) {
      memory.emplace_back(dtype, size, offsets[k % offsets.size()]);
      if (k < inputs) fill(memory[k], size * bytesOf(dtype), static_cast<unsigned>(k));
    }
    std::vector<Input> sources;
    for (std::size_t k = 0; k < inputs; ++k) sources.push_back({memory[k].data(), scale});
    Elements expected(dtype, size);
    if (size > 0) reduce({.dtype = dtype}, expected.data(), sources, size);
    sum(dtype, memory[inputs].data(), sources, size, threads);
    const auto isNan = [&](std::uint64_t bits) { return reference::formatOf(dtype).isNan(bits); };
    for (std::size_t i = 0; i < size; ++i) {
      const std::uint64_t bits = memory[inputs].get(i);
      if (isNan(bits) && isNan(expected.get(i))) continue;
      ASSERT_EQ(bits, expected.get(i)) << inputs << " inputs of " << size << ", element " << i;
    }
    EXPECT_TRUE(memory[inputs].guardsAreWhole());
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, DeviceThreads, testing::ValuesIn(kSummed),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(DeviceThreads, GiveTheProcessorsBits) {
  for (std::size_t inputs = 1; inputs <= 5; ++inputs) {
    for (const std::size_t size : kSizes) expectAsOnTheProcessor(GetParam(), inputs, size, {0}, 7);
  }
}

TEST_P(DeviceThreads, ScaleAsTheProcessorDoes) {
  for (const std::size_t inputs : {1, 2, 8}) expectAsOnTheProcessor(GetParam(), inputs, 1025, {0}, 5, 1.0 / 3);
}

TEST_P(DeviceThreads, TakeAnyAlignmentAndNumberOfThreads) {
  for (const std::uint64_t threads : {1, 3, 256}) {
    for (std::size_t offset = 0; offset < 16; ++offset) {
      for (const std::size_t size : {0, 1, 15, 16, 17, 333}) {
        expectAsOnTheProcessor(GetParam(), 3, size, {offset}, threads);
        expectAsOnTheProcessor(GetParam(), 3, size, {offset, 0, 1}, threads);
      }
    }
  }
}

TEST_P(DeviceThreads, MayWriteOverAnyOneOfTheirInputs) {
  constexpr std::size_t kSize = 517;
  constexpr std::size_t kInputs = 4;
  for (std::size_t inPlace = 0; inPlace < kInputs; ++inPlace) {
    std::vector<Aligned> memory;
    std::vector<Input> sources;
    for (std::size_t k = 0; k < kInputs; ++k) {
      memory.emplace_back(GetParam(), kSize, k);
      fill(memory[k], kSize * bytesOf(GetParam()), static_cast<unsigned>(k));
    }
    for (Aligned& one : memory) sources.push_back({one.data()});
    Elements expected(GetParam(), kSize);
    reduce({.dtype = GetParam()}, expected.data(), sources, kSize);
    sum(GetParam(), memory[inPlace].data(), sources, kSize, 3);
    for (std::size_t i = 0; i < kSize; ++i) {
      const std::uint64_t bits = memory[inPlace].get(i);
      const reference::Format format = reference::formatOf(GetParam());
      if (format.isNan(bits) && format.isNan(expected.get(i))) continue;
      ASSERT_EQ(bits, expected.get(i)) << i;
    }
  }
}

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
