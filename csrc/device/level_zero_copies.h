// Pieces of a device's memory that are copied within it, in as few calls as their places allow: pieces of one tensor,
// of one length and at equal distances, are one call. CUDA refuses a call whose distances lead from one allocation to
// another, though nothing between the two is touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/cuda_runtime.h"

namespace fairring {

struct CopiedPiece {
  std::byte* to;
  const std::byte* from;
  std::uint64_t bytes;
  std::uint32_t tensor;  // that it is of, as Portion counts them
};

class LevelZeroCopies {
 public:
  explicit LevelZeroCopies(std::span<const CopiedPiece> pieces);

  std::size_t calls() const { return runs_.size(); }
  void enqueue(cudaStream_t stream, int device) const;  // throws Failure

 private:
  struct Run {
    CopiedPiece first;
    std::uint64_t pieces = 1;
    std::uint64_t toDistance = 0;
    std::uint64_t fromDistance = 0;

    bool takes(const CopiedPiece& next) const;
    bool enqueueAtOnce(cudaStream_t stream, int device) const;  // false: CUDA takes the pieces one by one only
  };

  std::vector<Run> runs_;
};

}  // namespace fairring
