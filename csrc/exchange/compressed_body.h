// The body of slices that cross between sites in a format of their own (site_format.h). At the level of sites the
// elements of such a slice are encoded; below and above it they are Float32, all of them summed.
//
//   contribution  a site's sum plus its residual of the last time, encoded; this rank's own contribution, too
//   result        the contributions added in fp32, in the owners' order, and encoded; the owner keeps the residual
//
// So all ranks have the same bits, by every plan. It needs no more memory than a slice of Float32 that is cut on the
// same grain. A shard that is sent and not kept is encoded in place, into the first bytes of its range; the same shard
// of the result arrives in the last bytes. Arriving data takes the first half, at most, of the area that it would need
// as Float32. The second half of a rail's first area is scratch memory, from which this rank's own shard (in an
// all-reduce the whole rail) is sent.
#pragma once

#include <memory>
#include <utility>

#include "exchange/dense_body.h"
#include "exchange/site_format.h"
#include "exchange/traffic.h"

namespace fairring {

class CompressedBody final : public DenseBody {
 public:
  // residual: the rounding errors of the call's elements, one for each. counted: gets those of the contributions.
  CompressedBody(const SiteFormat& format, float* residual, std::shared_ptr<Rounding> counted)
      : format_(format), residual_(residual), counted_(std::move(counted)) {}

  std::vector<Transfer> transfers(const Slice& slice, std::size_t step) const override;
  Job beforeSending(const Slice& slice, std::size_t step) const override;
  Job afterReceiving(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const override;

 private:
  float* lostOf(const Slice& slice, const Range& range) const;
  void shrink(const Slice& slice, std::size_t step, std::vector<Transfer>& transfers) const;
  void addKept(Pieces& pieces, const Slice& slice, const Range& range, std::byte* spare, float* lost, bool fresh) const;
  void addSent(Pieces& pieces, const Slice& slice, const Range& range) const;
  void addResult(Pieces& pieces, const Slice& slice, const Rail& rail, const Range& range, std::byte* spare) const;
  Pieces encoding(const Slice& slice, std::size_t step) const;
  Pieces result(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const;
  Pieces decoding(const Slice& slice, std::size_t step) const;
  void addSum(Pieces& pieces, const Slice& slice, const Range& range, const std::vector<const std::byte*>& before,
              const std::vector<const std::byte*>& after) const;

  const SiteFormat& format_;
  float* const residual_;
  const std::shared_ptr<Rounding> counted_;
};

}  // namespace fairring
