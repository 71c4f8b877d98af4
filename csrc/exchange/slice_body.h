// What the steps of a slice send, need, and compute. The exchanges move bytes, promise memory and count; all that
// depends on what the bytes mean they ask here: of dense tensors (dense_body.h), of the rows of sparse ones
// (sparse_body.h), of what crosses between sites as bf16 (compressed_body.h), of the cells of an all-to-all (cells.h).
// Immutable: one body may serve all slices of a call, or of all calls. Pure, but for the memory that it points into;
// so are its jobs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "exchange/job.h"
#include "exchange/slice.h"
#include "exchange/summation.h"
#include "exchange/transfer.h"

namespace fairring {

struct PeerImage {  // of a rank of this machine
  const std::byte* data;
  double scale;
};
using PeerImages = std::map<int, PeerImage>;

class SliceBody {
 public:
  virtual ~SliceBody() = default;

  virtual std::uint64_t stagingBytes(const Slice& slice) const = 0;  // of its rank's

  // Level 0, in shared memory. First what is not in the tensors yet is made.
  virtual Job prepare(const Slice& slice) const;
  // Then comes what this rank's image has to hold for the step.
  virtual Job fill(const Slice& slice, std::size_t step) const = 0;
  // What peers may read of a rank's staging, from its image on.
  virtual std::uint64_t imageBytes(const Slice& slice, int rank) const = 0;
  // This rank's result, from the images of all. How much of it is read from a peer's.
  virtual Job combine(const Slice& slice, std::size_t step, const PeerImages& images) const = 0;
  virtual std::uint64_t bytesCombined(const Slice& slice, std::size_t step, int peer) const = 0;
  // A shard, from the image of who has it into this rank's tensors.
  virtual std::vector<Copy> deliver(const Slice& slice, const Range& shard, const std::byte* image) const = 0;

  // The levels above, on the rails.
  virtual std::vector<Transfer> transfers(const Slice& slice, std::size_t step) const = 0;
  // Before anything of the step is sent.
  virtual Job beforeSending(const Slice& slice, std::size_t step) const;
  // Once all of it is here.
  virtual Job afterReceiving(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const = 0;
};

inline Job SliceBody::prepare(const Slice&) const { return {}; }
inline Job SliceBody::beforeSending(const Slice&, std::size_t) const { return {}; }

}  // namespace fairring
