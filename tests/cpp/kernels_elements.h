// Memory of any dtype for the kernels' tests, and one-element reductions by their bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "kernels/reduce.h"

namespace fairring {

constexpr DType kDTypes[] = {DType::Float8E4M3, DType::Float8E5M2, DType::Float32, DType::Float64, DType::BFloat16,
                             DType::Float16,    DType::Int8,       DType::Int16,   DType::Int32,   DType::Int64,
                             DType::UInt8,      DType::UInt16,     DType::UInt32,  DType::UInt64,  DType::Bool};
constexpr std::span kNumbers(kDTypes, std::size(kDTypes) - 1);  // all but Bool, which comes last
constexpr std::span kFloats(kDTypes, 6);                        // they come first
constexpr Op kOps[] = {Op::Sum, Op::Product, Op::Min, Op::Max, Op::BitAnd, Op::BitOr, Op::BitXor};
constexpr std::size_t kSizes[] = {0, 1, 7, 8, 9, 1023, 1024, 1025, 4097};

// Memory whose elements have exactly the alignment that their type requires.
class Elements {
 public:
  Elements(DType dtype, std::size_t count) : bytes_(bytesOf(dtype)), memory_((count + 1) * bytes_) {}

  void* data() { return memory_.data() + bytes_; }
  void set(std::size_t i, std::uint64_t bits) { std::memcpy(memory_.data() + (i + 1) * bytes_, &bits, bytes_); }
  std::uint64_t get(std::size_t i) const {
    std::uint64_t bits = 0;
    std::memcpy(&bits, memory_.data() + (i + 1) * bytes_, bytes_);
    return bits;
  }

 private:
  std::size_t bytes_;
  std::vector<unsigned char> memory_;
};

inline std::uint64_t reduceBits(Reduction reduction, const std::vector<std::uint64_t>& inputs, double scale = 1.0) {
  std::vector<Elements> memory;
  for (const std::uint64_t bits : inputs) memory.emplace_back(reduction.dtype, 1).set(0, bits);
  std::vector<Input> sources;
  for (Elements& one : memory) sources.push_back({one.data(), scale});
  Elements out(reduction.dtype, 1);
  reduce(reduction, out.data(), sources, 1);
  return out.get(0);
}

}  // namespace fairring
