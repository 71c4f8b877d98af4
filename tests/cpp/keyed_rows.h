// Entries with keys for the tests that sum rows, and the expected sums: by the processor's stable sort and reduce().
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/reduce.h"
#include "kernels_reference.h"

namespace fairring {

struct KeyedRows {
  DType dtype;
  std::uint64_t rowElements;
  std::vector<std::uint64_t> keys;
  std::vector<unsigned char> values;
  // Expected.
  std::vector<std::uint32_t> order;
  std::vector<std::uint32_t> begins;
  std::vector<std::uint64_t> unique;
  std::vector<unsigned char> sums;

  std::uint64_t rowBytes() const { return rowElements * bytesOf(dtype); }

  // Random bits; half of the entries have one of three keys.
  KeyedRows(DType dtype, std::uint64_t rowElements, std::size_t entries, std::uint64_t keysBelow, unsigned seed)
      : dtype(dtype), rowElements(rowElements), keys(entries), values(entries * rowBytes()), order(entries) {
    std::mt19937_64 random(seed);
    for (std::uint64_t& key : keys)
      key = random() % (random() % 2 == 0 ? std::min<std::uint64_t>(3, keysBelow) : keysBelow);
    for (unsigned char& byte : values) byte = static_cast<unsigned char>(random());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::stable_sort(order, {}, [this](std::uint32_t entry) { return keys[entry]; });
    for (std::uint32_t place = 0; place < entries; ++place) {
      if (place > 0 && keys[order[place]] == keys[order[place - 1]]) continue;
      begins.push_back(place);
      unique.push_back(keys[order[place]]);
    }
    addUp();
  }

  // Compares bit by bit; any NaN equals any other.
  bool areTheSums(const unsigned char* got) const {
    const std::size_t bytes = bytesOf(dtype);
    for (std::size_t at = 0; at < sums.size(); at += bytes) {
      std::uint64_t one = 0;
      std::uint64_t other = 0;
      std::memcpy(&one, got + at, bytes);
      std::memcpy(&other, sums.data() + at, bytes);
      const auto isNan = [this](std::uint64_t bits) {
        return isFloat(dtype) && reference::formatOf(dtype).isNan(bits);
      };
      if (one != other && !(isNan(one) && isNan(other))) return false;
    }
    return true;
  }

 private:
  void addUp() {
    sums.resize(unique.size() * rowBytes());
    for (std::size_t row = 0; row < unique.size() && rowElements > 0; ++row) {
      std::vector<Input> inputs;
      const std::size_t end = row + 1 < begins.size() ? begins[row + 1] : order.size();
      for (std::size_t place = begins[row]; place < end; ++place)
        inputs.push_back({values.data() + order[place] * rowBytes()});
      reduce({.dtype = dtype}, sums.data() + row * rowBytes(), inputs, rowElements);
    }
  }
};

}  // namespace fairring
