// A slice's body says what its steps send, need, and compute. The exchanges move bytes, promise memory and count. They
// ask the body for everything that depends on the meaning of the bytes: dense tensors (dense_body.h), rows of sparse
// ones (sparse_body.h), sums that cross between sites in another format (compressed_body.h), cells of an all-to-all
// (cells.h). A body is immutable: one may serve all slices of a call, or of all calls. It and its jobs are pure, except
// for the memory that they point into.
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

struct PeerImage {  // of another rank of this machine
  const std::byte* data;
  double scale;
};
using PeerImages = std::map<int, PeerImage>;

class SliceBody {
 public:
  virtual ~SliceBody() = default;

  virtual std::uint64_t stagingBytes(const Slice& slice) const = 0;  // that a slice takes on its rank

  // Level 0, in shared memory. First, this makes the input that is not in the tensors yet.
  virtual Job prepare(const Slice& slice) const;
  // Then this fills this rank's image with the input of the step.
  virtual Job fill(const Slice& slice, std::size_t step) const = 0;
  // The number of bytes of a rank's staging that peers may read, from its image on.
  virtual std::uint64_t imageBytes(const Slice& slice, int rank) const = 0;
  // Computes this rank's result from the images of all; bytesCombined() says how much of a peer's image that reads.
  virtual Job combine(const Slice& slice, std::size_t step, const PeerImages& images) const = 0;
  virtual std::uint64_t bytesCombined(const Slice& slice, std::size_t step, int peer) const = 0;
  // Copies a shard from its owner's image into this rank's tensors.
  virtual std::vector<Copy> deliver(const Slice& slice, const Range& shard, const std::byte* image) const = 0;

  // The levels above, on the rails.
  virtual std::vector<Transfer> transfers(const Slice& slice, std::size_t step) const = 0;
  // Before any data of the step is sent.
  virtual Job beforeSending(const Slice& slice, std::size_t step) const;
  // Once all data of the step is here.
  virtual Job afterReceiving(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const = 0;
};

inline Job SliceBody::prepare(const Slice&) const { return {}; }
inline Job SliceBody::beforeSending(const Slice&, std::size_t) const { return {}; }

}  // namespace fairring
