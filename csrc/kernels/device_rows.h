// Rows with keys in memory of a CUDA device, some keys more than once: returns each key once, ascending, with the sum
// of its rows. Keys are sorted by CUB's radix sort, which keeps equal ones in their order; rows are added in that
// order, so the bits are those of reduce() on the processor, in every run. Any thread, no state. All is enqueued on a
// stream of the device; nothing waits, once loadRowKernels() has been called for it. Throw Failure, in words that name
// the call.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/reduce.h"

namespace fairring {

// CUB's kernels and ours; each would otherwise be loaded when it is first launched, which may wait until the device is
// idle. Waits until what it tries out is through.
void loadRowKernels(int device);

// Which entries have the same key. Arrays of as many as there are entries.
struct MatchedRows {
  std::uint64_t* keys = nullptr;    // each once, ascending
  std::uint32_t* begins = nullptr;  // where in `order` the entries of each key begin
  std::uint32_t* order = nullptr;   // the entries, grouped by key
  std::uint64_t* count = nullptr;   // a single number: of keys
};

// The scratch memory of the device for matching that many entries, in bytes; it begins at a multiple of 256.
std::uint64_t matchScratchBytes(std::uint64_t entries, int device);

// At least one entry, fewer than 2^31. The keys are below keysBelow, which saves passes.
void matchRows(const MatchedRows& to, const std::uint64_t* keys, std::uint64_t entries, std::uint64_t keysBelow,
               std::byte* scratch, int device, cudaStream_t stream);

// out: matched.count rows; the host passes that number as `rows`. values: all entries' rows. Both are packed and don't
// overlap.
void sumRows(DType dtype, void* out, const void* values, std::uint64_t rowElements, const MatchedRows& matched,
             std::uint64_t rows, std::uint64_t entries, int device, cudaStream_t stream);

}  // namespace fairring
