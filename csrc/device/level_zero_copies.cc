#include "device/level_zero_copies.h"

#include "base/cuda_error.h"

namespace fairring {

namespace {

constexpr std::int64_t kMostDistance = (std::int64_t{1} << 31) - 1;  // cudaDevAttrMaxPitch, on all devices

std::uint64_t distance(const std::byte* from, const std::byte* to) { return static_cast<std::uint64_t>(to - from); }

}  // namespace

LevelZeroCopies::LevelZeroCopies(std::span<const CopiedPiece> pieces) {
  for (const CopiedPiece& piece : pieces) {
    if (piece.bytes == 0) continue;
    if (runs_.empty() || !runs_.back().takes(piece)) {
      runs_.push_back({.first = piece});
      continue;
    }
    Run& run = runs_.back();
    if (run.pieces++ > 1) continue;
    run.toDistance = distance(run.first.to, piece.to);
    run.fromDistance = distance(run.first.from, piece.from);
  }
}

bool LevelZeroCopies::Run::takes(const CopiedPiece& next) const {
  if (next.tensor != first.tensor || next.bytes != first.bytes) return false;
  if (pieces > 1) return next.to == first.to + pieces * toDistance && next.from == first.from + pieces * fromDistance;
  const auto isPitch = [this](std::ptrdiff_t apart) {
    return apart >= static_cast<std::ptrdiff_t>(first.bytes) && apart <= kMostDistance;
  };
  return isPitch(next.to - first.to) && isPitch(next.from - first.from);
}

// A tensor may lie in several allocations, as in torch's expandable segments, and CUDA refuses distances that lead from
// one to the next before it copies anything.
bool LevelZeroCopies::Run::enqueueAtOnce(cudaStream_t stream, int device) const {
  const cudaError_t result = cudaMemcpy2DAsync(first.to, toDistance, first.from, fromDistance, first.bytes, pieces,
                                               cudaMemcpyDeviceToDevice, stream);
  if (result == cudaErrorInvalidValue || result == cudaErrorInvalidPitchValue) {
    forget(result);
    return false;
  }
  checkCuda(result, "cudaMemcpy2DAsync", device);
  return true;
}

void LevelZeroCopies::enqueue(cudaStream_t stream, int device) const {
  const CurrentDevice current(device);
  for (const Run& run : runs_) {
    if (run.pieces > 1 && run.enqueueAtOnce(stream, device)) continue;
    for (std::uint64_t i = 0; i < run.pieces; ++i) {
      checkCuda(cudaMemcpyAsync(run.first.to + i * run.toDistance, run.first.from + i * run.fromDistance,
                                run.first.bytes, cudaMemcpyDeviceToDevice, stream),
                "cudaMemcpyAsync", device);
    }
  }
}

}  // namespace fairring
