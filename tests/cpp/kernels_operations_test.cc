// Every operation on every dtype, in every instruction set that runs here, against kernels_reference.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

#include "kernels/control.h"
#include "kernels/loops.h"
#include "kernels_elements.h"
#include "kernels_reference.h"

namespace fairring {
namespace {

const char* name(Op op) {
  constexpr const char* kNames[] = {"Sum", "Product", "Min", "Max", "BitAnd", "BitOr", "BitXor"};
  return kNames[static_cast<std::size_t>(op)];
}

std::vector<Reduction> definedReductions() {
  std::vector<Reduction> all;
  for (const Op op : kOps) {
    for (const DType dtype : kDTypes) {
      if (isDefined(op, dtype)) all.push_back({.dtype = dtype, .op = op});
    }
  }
  return all;
}

// Any bits, and often those with which mistakes are easy: zeros, infinities, NaNs, denormals, the ends of the range.
class RandomBits {
 public:
  explicit RandomBits(DType dtype) : dtype_(dtype) {
    const std::uint64_t all = bytesOf(dtype) == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * bytesOf(dtype)) - 1;
    special_ = {0, 1, 2, all, all - 1, all / 2, all / 2 + 1, all / 2 + 2, all / 3};
    if (!isFloat(dtype)) return;
    const reference::Format format = reference::formatOf(dtype);
    const std::uint64_t greatest = format.greatest();
    const std::uint64_t one = reference::encode(format, 1);
    for (const std::uint64_t bits : {greatest, greatest - 1, greatest + 1, one, std::uint64_t{1} << format.fractionBits,
                                     (std::uint64_t{1} << format.fractionBits) - 1}) {
      special_.push_back(bits);
      special_.push_back(bits | format.sign());
    }
  }

  const std::vector<std::uint64_t>& special() const { return special_; }
  std::uint64_t next() {
    switch (random_() % 4) {
      case 0: return special_[random_() % special_.size()];
      case 1: return isFloat(dtype_) ? nearOne() : random_() % 5;
      default: return random_();
    }
  }

 private:
  std::uint64_t nearOne() {  // so that sums and products of several stay in the range
    const reference::Format format = reference::formatOf(dtype_);
    const std::uint64_t fraction = random_() & ((std::uint64_t{1} << format.fractionBits) - 1);
    return (reference::encode(format, 1) | fraction) ^ ((random_() & 1) != 0 ? format.sign() : 0);
  }

  DType dtype_;
  std::mt19937_64 random_{3};
  std::vector<std::uint64_t> special_;
};

// scales: of the inputs, one after the other. Two inputs, if there are enough elements, have every pair of special
// bits.
void expectAsInReference(const Reduction& reduction, std::size_t inputs, std::size_t size,
                         const std::vector<double>& scales = {1.0}) {
  const DType dtype = reduction.dtype;
  RandomBits bits(dtype);
  const std::vector<std::uint64_t>& special = bits.special();
  std::vector<Elements> memory(inputs, Elements(dtype, size));
  Elements expected(dtype, size);
  std::vector<std::uint64_t> column(inputs);
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t k = 0; k < inputs; ++k) {
      const bool isPair = inputs == 2 && i < special.size() * special.size();
      memory[k].set(i, isPair ? special[(k == 0 ? i / special.size() : i) % special.size()] : bits.next());
      column[k] = memory[k].get(i);
    }
    expected.set(i, reference::reduce(reduction, column, scales));
  }
  std::vector<Input> sources;
  for (std::size_t k = 0; k < inputs; ++k) sources.push_back({memory[k].data(), scales[k % scales.size()]});
  const auto isNan = [&](std::uint64_t one) { return isFloat(dtype) && reference::formatOf(dtype).isNan(one); };
  for (const Isa& isa : runnableIsas()) {
    Elements out(dtype, size);
    isa.reduce({reduction, out.data(), sources.data(), inputs, size});
    for (std::size_t i = 0; i < size; ++i) {
      if (isNan(out.get(i)) && isNan(expected.get(i))) continue;
      ASSERT_EQ(out.get(i), expected.get(i)) << isa.name << ", " << inputs << " inputs of " << size << ", element " << i
                                             << ": " << std::hex << memory[0].get(i) << " ...";
    }
  }
}

class Operations : public testing::TestWithParam<Reduction> {};

INSTANTIATE_TEST_SUITE_P(Kernels, Operations, testing::ValuesIn(definedReductions()),
                         [](const auto& info) { return std::string(name(info.param.op)) + name(info.param.dtype); });

TEST_P(Operations, GiveWhatTheReferenceGives) {
  for (std::size_t inputs = 1; inputs <= 5; ++inputs) {
    for (const std::size_t size : kSizes) expectAsInReference(GetParam(), inputs, size);
  }
  expectAsInReference(GetParam(), 9, 1025);
}

TEST_P(Operations, MayWriteOverAnyOneOfTheirInputs) {
  constexpr std::size_t kSize = 1025;
  constexpr std::size_t kInputs = 4;
  RandomBits bits(GetParam().dtype);
  std::vector<Elements> fresh(kInputs, Elements(GetParam().dtype, kSize));
  for (std::size_t i = 0; i < kSize; ++i) {
    for (Elements& input : fresh) input.set(i, bits.next());
  }
  const auto reduceInto = [&](std::vector<Elements>& memory, Elements& out) {
    std::vector<Input> sources;
    for (Elements& input : memory) sources.push_back({input.data()});
    reduce(GetParam(), out.data(), sources, kSize);
  };
  Elements expected(GetParam().dtype, kSize);
  reduceInto(fresh, expected);
  for (std::size_t inPlace = 0; inPlace < kInputs; ++inPlace) {
    std::vector<Elements> memory = fresh;
    reduceInto(memory, memory[inPlace]);
    for (std::size_t i = 0; i < kSize; ++i) ASSERT_EQ(memory[inPlace].get(i), expected.get(i)) << i;
  }
}

class ScaledSums : public testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Kernels, ScaledSums, testing::ValuesIn(kNumbers),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(ScaledSums, GiveWhatTheReferenceGives) {
  for (const int ranks : {2, 3, 7}) {
    Reduction reduction{.dtype = GetParam()};
    std::vector<double> scales{1.0};
    if (isFloat(GetParam())) {
      scales = {1.0 / ranks, 1.0, -3.0};
    } else {
      reduction.divisor = ranks;
    }
    for (std::size_t inputs = 1; inputs <= 4; ++inputs) {
      for (const std::size_t size : kSizes) expectAsInReference(reduction, inputs, size, scales);
    }
  }
}

TEST(ScaledSums, DivideEveryIntegerOfSixteenBitsByAnyNumberOfRanks) {
  constexpr std::size_t kValues = 1 << 16;
  for (const DType dtype : {DType::Int16, DType::UInt16}) {
    Elements in(dtype, kValues);
    for (std::size_t i = 0; i < kValues; ++i) in.set(i, i);
    const Input input{in.data()};
    for (const int ranks : {2, 3, 5, 6, 7, 11, 1000, 32767, 65535, 1 << 20, (1 << 24) + 1}) {
      Elements out(dtype, kValues);
      reduce({.dtype = dtype, .divisor = ranks}, out.data(), {&input, 1}, kValues);
      for (std::size_t i = 0; i < kValues; ++i) {
        const int value = dtype == DType::Int16 ? static_cast<std::int16_t>(i) : static_cast<int>(i);
        ASSERT_EQ(out.get(i), static_cast<std::uint16_t>(value / ranks)) << value << " by " << ranks;
      }
    }
  }
}

TEST(Operations, OnBitsAreNotDefinedForFloats) {
  for (const DType dtype : kDTypes) {
    EXPECT_TRUE(isDefined(Op::Sum, dtype) && isDefined(Op::Product, dtype));
    EXPECT_TRUE(isDefined(Op::Min, dtype) && isDefined(Op::Max, dtype));
    for (const Op op : {Op::BitAnd, Op::BitOr, Op::BitXor}) EXPECT_NE(isDefined(op, dtype), isFloat(dtype));
  }
}

}  // namespace
}  // namespace fairring
