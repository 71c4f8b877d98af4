// The body of slices that cross between sites as bf16. At the level of sites the elements of such a slice are bf16;
// below and above it they are Float32, all of them summed.
//
//   contribution  what a site has summed, and what was lost of it the last time, rounded; this rank's own, too
//   result        the contributions added in fp32, in the owners' order, and rounded; what that loses is its owner's
//
// So all ranks have the same bits, by every plan. No memory is needed beside what a slice of Float32 has. A shard that
// is sent and not kept is rounded in place, into the first half of its range; the same shard of the result arrives in
// the second half. What comes takes the first half of the area that it would need as Float32; the second half of a
// rail's first area is the spare, where this rank's own shard (of an all-reduce the whole rail) is sent from.
#pragma once

#include "exchange/dense_body.h"

namespace fairring {

class CompressedBody final : public DenseBody {
 public:
  // residual: what rounding has taken of the call's elements, one for one.
  explicit CompressedBody(float* residual) : residual_(residual) {}

  std::vector<Transfer> transfers(const Slice& slice, std::size_t step) const override;
  Job beforeSending(const Slice& slice, std::size_t step) const override;
  Job afterReceiving(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const override;

 private:
  float* lostOf(const Slice& slice, const Range& range) const;
  void addSent(Pieces& pieces, const Slice& slice, const Range& range) const;
  void addResult(Pieces& pieces, const Slice& slice, const Rail& rail, const Range& range, std::byte* spare) const;
  Pieces rounding(const Slice& slice, std::size_t step) const;
  Pieces result(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const;

  float* const residual_;
};

}  // namespace fairring
