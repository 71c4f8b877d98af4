#include "kernels/stream_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace fairring {
namespace {

constexpr std::byte kUntouched{0xaa};

TEST(StreamCopy, CopiesAnyNumberOfBytesFromAndToAnyPlaceAndNoOthers) {
  constexpr std::size_t kMost = 1300;
  constexpr std::size_t kMargin = 64;
  std::vector<std::byte> from(kMost + kMargin);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (std::size_t bytes = 0; bytes <= kMost; ++bytes) {
    for (const std::size_t shift : {0, 1, 3, 8, 17, 63}) {
      std::vector<std::byte> to(kMost + 2 * kMargin, kUntouched);
      streamCopy(to.data() + shift, from.data() + bytes % kMargin, bytes);
      const auto begin = to.begin() + static_cast<std::ptrdiff_t>(shift);
      const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
      const auto isUntouched = [](std::byte value) { return value == kUntouched; };
      ASSERT_TRUE(std::equal(begin, end, from.begin() + static_cast<std::ptrdiff_t>(bytes % kMargin))) << bytes;
      ASSERT_TRUE(std::all_of(to.begin(), begin, isUntouched)) << bytes;
      ASSERT_TRUE(std::all_of(end, to.end(), isUntouched)) << bytes;
    }
  }
}

}  // namespace
}  // namespace fairring
