// Matching and summing rows on a device against the processor's sort and reduce(). compute-sanitizer runs this too.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/cuda_stream.h"
#include "base/error.h"
#include "cuda_device.h"
#include "kernels/device_rows.h"
#include "kernels_elements.h"
#include "keyed_rows.h"

namespace fairring {
namespace {

template <class T>
Bytes bytesOfAll(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <class T>
std::vector<T> fromDevice(const void* device, std::size_t count) {
  std::vector<T> values(count);
  const Bytes bytes = onHost(device, count * sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

class CudaRows : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override { skipWithoutDevice(); }

  static void expectTheSums(const KeyedRows& rows, std::uint64_t keysBelow, std::size_t offset = 0) {
    const std::size_t entries = rows.keys.size();
    const auto keys = onDevice(bytesOfAll(rows.keys));
    const auto unique = deviceMemory(entries * sizeof(std::uint64_t), kDevice);
    const auto begins = deviceMemory(entries * sizeof(std::uint32_t), kDevice);
    const auto order = deviceMemory(entries * sizeof(std::uint32_t), kDevice);
    const auto count = deviceMemory(sizeof(std::uint64_t), kDevice);
    const auto scratch = deviceMemory(matchScratchBytes(entries, kDevice), kDevice);
    const MatchedRows matched{.keys = reinterpret_cast<std::uint64_t*>(unique.get()),
                              .begins = reinterpret_cast<std::uint32_t*>(begins.get()),
                              .order = reinterpret_cast<std::uint32_t*>(order.get()),
                              .count = reinterpret_cast<std::uint64_t*>(count.get())};
    const CudaStream stream(kDevice);
    matchRows(matched, reinterpret_cast<const std::uint64_t*>(keys.get()), entries, keysBelow, scratch.get(), kDevice,
              stream.get());
    stream.synchronize();
    ASSERT_EQ(fromDevice<std::uint64_t>(count.get(), 1).front(), rows.unique.size());
    EXPECT_EQ(fromDevice<std::uint64_t>(unique.get(), rows.unique.size()), rows.unique);
    EXPECT_EQ(fromDevice<std::uint32_t>(begins.get(), rows.begins.size()), rows.begins);
    EXPECT_EQ(fromDevice<std::uint32_t>(order.get(), entries), rows.order);
    Bytes shifted(offset);
    shifted.insert(shifted.end(), rows.values.begin(), rows.values.end());
    const auto values = onDevice(shifted);
    const auto out = onDevice(Bytes(offset + rows.sums.size()));
    sumRows(rows.dtype, out.get() + offset, values.get() + offset, rows.rowElements, matched, rows.unique.size(),
            entries, kDevice, stream.get());
    stream.synchronize();
    EXPECT_TRUE(rows.areTheSums(onHost(out.get() + offset, rows.sums.size()).data()))
        << entries << " entries of " << rows.rowElements << " elements";
  }
};

INSTANTIATE_TEST_SUITE_P(Cuda, CudaRows, testing::ValuesIn(kDTypes),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(CudaRows, AreMatchedAndSummedAsOnTheProcessor) {
  unsigned seed = 0;
  for (const std::uint64_t elements : {1, 3, 16, 64, 1000, 4096}) {
    for (const std::size_t entries : {1, 2, 1000}) {
      expectTheSums(KeyedRows(GetParam(), elements, entries, 700, ++seed), 700);
    }
  }
}

TEST_P(CudaRows, MayBeginAnywhere) { expectTheSums(KeyedRows(GetParam(), 64, 1000, 700, 1), 700, 8); }

TEST_P(CudaRows, AreMatchedByAllBitsOfTheirKeys) {
  for (const std::uint64_t keysBelow : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{1} << 32,
                                        static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())}) {
    expectTheSums(KeyedRows(GetParam(), 4, 100'003, keysBelow, 2), keysBelow);
  }
}

class CudaRowsRefused : public testing::Test {
 protected:
  void SetUp() override { skipWithoutDevice(); }
};

TEST_F(CudaRowsRefused, WhereThereAreMoreEntriesThanCanBeNumbered) {
  const CudaStream stream(kDevice);
  EXPECT_THROW(matchRows({}, nullptr, std::uint64_t{1} << 31, 1, nullptr, kDevice, stream.get()), Failure);
}

}  // namespace
}  // namespace fairring
