// The body of slices of dense tensors: contributions are as long as their ranges, and summed in the owners'
// order.
#pragma once

#include "exchange/slice_body.h"

namespace fairring {

class DenseBody : public SliceBody {
 public:
  std::uint64_t stagingBytes(const Slice& slice) const override;
  Job fill(const Slice& slice, std::size_t step) const override;
  std::uint64_t imageBytes(const Slice& slice, int rank) const override;
  Job combine(const Slice& slice, std::size_t step, const PeerImages& images) const override;
  std::uint64_t bytesCombined(const Slice& slice, std::size_t step, int peer) const override;
  std::vector<Copy> deliver(const Slice& slice, const Range& shard, const std::byte* image) const override;
  std::vector<Transfer> transfers(const Slice& slice, std::size_t step) const override;
  Job afterReceiving(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const override;

  // The sums of a reducing step, over this rank's own contributions and the received ones.
  static Sums sums(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers);
};

// The machine's one rail; null if there is none, because the slice is empty.
const Rail* machineRail(const Slice& slice);
// This rank's shard of it.
Range machineShard(const Slice& slice);

}  // namespace fairring
