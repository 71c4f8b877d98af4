// The work of a device's threads in a sum of rows, run one thread after the other on the processor, against reduce().
// Sorting and the launch are tested on a device (cuda_rows_test.cc).
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#define FAIRRING_ISA processor_rows
#include "kernels/device_row_thread.h"  // before the choice, which names its types

#include "kernels/device_choice.h"
#include "kernels_elements.h"
#include "keyed_rows.h"

namespace fairring {
namespace {

// Memory that begins that many bytes after a boundary of a vector.
class Memory {
 public:
  Memory(std::size_t bytes, std::size_t offset)
      : words_((bytes + offset) / kVectorBytes + 2), data_(reinterpret_cast<unsigned char*>(words_.data()) + offset) {}

  unsigned char* data() { return data_; }

 private:
  struct alignas(kVectorBytes) Word {
    unsigned char bytes[kVectorBytes];
  };
  std::vector<Word> words_;
  unsigned char* data_;
};

template <bool HasVectors>
void runAllThreads(DType dtype, const RowArguments& arguments, std::uint64_t threads) {
  processor_rows::visitSum(dtype, [&]<class Type, class Operation> {
    for (std::uint64_t thread = 0; thread < threads; ++thread)
      processor_rows::RowThread<Type, Operation, HasVectors>(arguments, thread, threads).run();
  });
}

// threads: of a block; as many may share a row.
void expectTheSums(const KeyedRows& rows, std::uint32_t threads, std::uint64_t blocks, std::size_t offset) {
  Memory values(rows.values.size(), offset);
  if (!rows.values.empty()) std::memcpy(values.data(), rows.values.data(), rows.values.size());
  Memory out(rows.sums.size(), offset);
  const bool hasVectors = rowsHaveVectors(out.data(), values.data(), rows.rowBytes());
  EXPECT_EQ(hasVectors, offset == 0 && rows.rowBytes() % kVectorBytes == 0);
  RowArguments arguments{.out = out.data(),
                         .values = values.data(),
                         .order = rows.order.data(),
                         .begins = rows.begins.data(),
                         .rows = rows.unique.size(),
                         .entries = rows.order.size(),
                         .pieces = hasVectors ? rows.rowBytes() / kVectorBytes : rows.rowElements};
  arguments.threadsShift = threadsShiftFor(arguments.pieces, threads);
  if (hasVectors) {
    runAllThreads<true>(rows.dtype, arguments, threads * blocks);
  } else {
    runAllThreads<false>(rows.dtype, arguments, threads * blocks);
  }
  EXPECT_TRUE(rows.areTheSums(out.data()))
      << rows.order.size() << " entries of " << rows.rowElements << " elements, " << blocks << " blocks of " << threads;
}

class DeviceRowThreads : public testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Kernels, DeviceRowThreads, testing::ValuesIn(kDTypes),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(DeviceRowThreads, GiveTheProcessorsBitsForRowsOfEveryLength) {
  unsigned seed = 0;
  for (const std::uint64_t elements : {1, 2, 3, 15, 16, 17, 32, 64, 160}) {
    for (const std::size_t entries : {1, 2, 5, 200}) {
      expectTheSums(KeyedRows(GetParam(), elements, entries, 50, ++seed), 8, 3, 0);
    }
  }
}

TEST_P(DeviceRowThreads, TakeAnyNumberOfThreadsAndAlignment) {
  unsigned seed = 100;
  for (const std::uint64_t elements : {5, 32}) {
    const KeyedRows rows(GetParam(), elements, 100, 40, ++seed);
    for (const std::uint32_t threads : {1, 4, 256}) {
      for (const std::uint64_t blocks : {1, 2, 40}) {
        expectTheSums(rows, threads, blocks, 0);
        expectTheSums(rows, threads, blocks, 8);
      }
    }
  }
}

TEST_P(DeviceRowThreads, SumHoweverManyEntriesHaveOneKey) {
  for (std::size_t entries = 1; entries < 12; ++entries) {
    expectTheSums(KeyedRows(GetParam(), 16, entries, 1, static_cast<unsigned>(entries)), 4, 2, 0);
  }
}

TEST(DeviceRowThreads, OfSixteenBitsRoundOnce) {
  KeyedRows rows(DType::BFloat16, 1, 257, 1, 0);
  const std::uint16_t large = 0x4380;  // 256, to which a bfloat16 can't add 1
  const std::uint16_t one = 0x3f80;
  for (std::size_t i = 0; i < 257; ++i) std::memcpy(&rows.values[2 * i], i == 0 ? &large : &one, 2);
  std::uint16_t sum = 0;
  const RowArguments arguments{.out = &sum,
                               .values = rows.values.data(),
                               .order = rows.order.data(),
                               .begins = rows.begins.data(),
                               .rows = 1,
                               .entries = 257,
                               .pieces = 1};
  runAllThreads<false>(rows.dtype, arguments, 1);
  EXPECT_EQ(sum, 0x4400);  // 512
}

TEST(RowArguments, HaveNoMoreThreadsForARowThanItHasPieces) {
  for (std::uint64_t pieces = 1; pieces < 600; ++pieces) {
    const std::uint64_t sharing = std::uint64_t{1} << threadsShiftFor(pieces, 256);
    EXPECT_LE(sharing, std::min<std::uint64_t>(pieces, 256));
    EXPECT_GT(2 * sharing, std::min<std::uint64_t>(pieces, 256));
  }
}

}  // namespace
}  // namespace fairring
