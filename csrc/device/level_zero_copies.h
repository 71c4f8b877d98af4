// Pieces of a device's memory that are copied within it, in as few calls as their places allow: pieces of one length at
// equal distances are one call. Only in builds with CUDA.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fairring {

struct CopiedPiece {
  std::byte* to;
  const std::byte* from;
  std::uint64_t bytes;
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
  };

  std::vector<Run> runs_;
};

}  // namespace fairring
