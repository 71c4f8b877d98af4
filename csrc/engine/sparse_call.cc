#include "engine/sparse_call.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

namespace fairring {

namespace {

constexpr std::uint64_t kKeysOfFourBytes = 1ULL << 32;

}  // namespace

SparseCall::SparseCall(SparseOperand operand, int rank, int world)
    : operand_(std::move(operand)), rank_(static_cast<std::size_t>(rank)), counts_(static_cast<std::size_t>(world)) {}

Operand SparseCall::counts() {
  counts_[rank_] = operand_.keys.size();
  return {counts_.data(), counts_.size(), {.dtype = DType::Int64}};
}

// Whichever is shorter, from what is equal on all ranks.
bool SparseCall::asBits() const {
  const std::uint64_t keys = std::accumulate(counts_.begin(), counts_.end(), std::uint64_t{0});
  const std::uint64_t keyBytes = operand_.keysBelow <= kKeysOfFourBytes ? 4 : 8;
  return wordsOfBits() < keys * keyBytes / (8 * counts_.size());
}

Operand SparseCall::indices() {
  if (asBits()) {
    indices_.resize(wordsOfBits() * counts_.size());
    std::uint64_t* const bits = indices_.data() + rank_ * wordsOfBits();
    for (const std::uint64_t key : operand_.keys) bits[key / 64] |= 1ULL << (key % 64);
    return {indices_.data(), indices_.size(), {.dtype = DType::Int64}};
  }
  const std::uint64_t before =
      std::accumulate(counts_.begin(), counts_.begin() + static_cast<std::ptrdiff_t>(rank_), std::uint64_t{0});
  const std::uint64_t all = std::accumulate(counts_.begin(), counts_.end(), std::uint64_t{0});
  if (operand_.keysBelow > kKeysOfFourBytes) {
    indices_.resize(all);
    std::ranges::copy(operand_.keys, indices_.begin() + static_cast<std::ptrdiff_t>(before));
    return {indices_.data(), all, {.dtype = DType::Int64}};
  }
  indices_.resize((all + 1) / 2);
  auto* at = reinterpret_cast<std::byte*>(indices_.data()) + 4 * before;
  for (const std::uint64_t key : operand_.keys) {
    const auto narrow = static_cast<std::uint32_t>(key);
    std::memcpy(at, &narrow, sizeof narrow);
    at += sizeof narrow;
  }
  return {indices_.data(), all, {.dtype = DType::Int32}};
}

std::vector<std::vector<std::uint64_t>> SparseCall::keysOfAll() const {
  std::vector<std::vector<std::uint64_t>> keys(counts_.size());
  const auto* at = reinterpret_cast<const std::byte*>(indices_.data());
  for (std::size_t rank = 0; rank < counts_.size(); ++rank) {
    std::vector<std::uint64_t>& its = keys[rank];
    its.reserve(counts_[rank]);
    if (asBits()) {
      for (std::uint64_t word = 0; word < wordsOfBits(); ++word) {
        for (std::uint64_t bits = indices_[rank * wordsOfBits() + word]; bits != 0; bits &= bits - 1)
          its.push_back(word * 64 + static_cast<std::uint64_t>(std::countr_zero(bits)));
      }
      continue;
    }
    const std::size_t keyBytes = operand_.keysBelow <= kKeysOfFourBytes ? 4 : 8;
    for (std::uint64_t i = 0; i < counts_[rank]; ++i, at += keyBytes) {
      std::uint64_t key = 0;
      std::memcpy(&key, at, keyBytes);
      its.push_back(key);
    }
  }
  return keys;
}

std::shared_ptr<const SparseRows> SparseCall::rows(const Topology& topology) const {
  return std::make_shared<const SparseRows>(topology, static_cast<int>(rank_), keysOfAll(), operand_.rowBytes(),
                                            operand_.values);
}

Operand SparseCall::values(const SparseRows& rows) const {
  std::byte* const result = operand_.result ? operand_.result(rows.all()) : nullptr;
  return {result, rows.all().size() * operand_.rowElements, operand_.reduction};
}

}  // namespace fairring
