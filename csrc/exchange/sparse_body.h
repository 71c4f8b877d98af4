// The body of slices of a sparse call. Contributions travel packed, without the rows that they lack and without
// indices, because every rank knows which rows each of them holds (sparse_rows.h).
//
//   staging of a slice   image | own contribution | per step that reduces: what is received, and, if it is not the last
//                        such step, its sum
//
// Everything but the image is packed; sums of the last reducing step go to the image, where every row has its place.
// The image and all-gathers are as for dense slices. Each area begins at a multiple of 64 bytes.
#pragma once

#include <memory>

#include "exchange/dense_body.h"
#include "exchange/sparse_rows.h"

namespace fairring {

class SparseBody final : public DenseBody {
 public:
  explicit SparseBody(std::shared_ptr<const SparseRows> rows) : rows_(std::move(rows)) {}

  std::uint64_t stagingBytes(const Slice& slice) const override;
  Job fill(const Slice& slice, std::size_t step) const override;
  std::uint64_t imageBytes(const Slice& slice, int rank) const override;
  Job combine(const Slice& slice, std::size_t step, const PeerImages& images) const override;
  std::uint64_t bytesCombined(const Slice& slice, std::size_t step, int peer) const override;
  std::vector<Transfer> transfers(const Slice& slice, std::size_t step) const override;
  Job afterReceiving(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const override;

 private:
  const std::shared_ptr<const SparseRows> rows_;
};

}  // namespace fairring
