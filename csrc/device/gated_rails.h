// The rails of a device's slices as the loop has them: shards are copied to pinned memory, the loop exchanges them with
// other machines, and the device sums what comes. Streams wait for the loop at gates, the loop for streams by what they
// tell (device_exchange.h).
//
// It can't deadlock, even where all streams share one queue of the device: a gate waits for this rank's loop alone, and
// that for nothing but earlier work, here and on the peers: the peers' own chains up to the same slice.
//
// Pinned staging has the offsets of the device's. Its places are guarded by the slice's first gate.
#pragma once

#include <memory>
#include <vector>

#include "base/loop.h"
#include "device/device_rails.h"
#include "device/gates.h"
#include "device/tells.h"

namespace fairring {

class GatedRails final : public DeviceRails {
 public:
  // Memory is the accelerator's; the loop outlives it.
  GatedRails(Accelerator& accelerator, std::uint64_t stagingBytes, Loop& loop);

  std::shared_ptr<DeviceExchange> exchange() const override { return exchange_; }
  void announce(const Slice& slice, std::uint64_t stagingBytes, bool last) override;
  void enqueue(Accelerator& accelerator, Accelerator::Stream stream, const Slice& slice) override;
  void endSlice(Accelerator& accelerator, Accelerator::Stream stream, const Slice& slice) override;
  void endCall(Accelerator&, const Accelerator::Event&) override {}

 private:
  struct At {  // where of a device the slice stands
    Accelerator& accelerator;
    Accelerator::Stream stream;
  };
  void enqueueStep(const At& at, const Slice& slice, std::size_t step);
  void copyOut(const At& at, const Slice& slice, const Range& range) const;
  void copyIn(const At& at, const Slice& slice, std::uint64_t offset, std::uint64_t bytes) const;
  void await(const At& at, const Slice& slice, std::size_t gate) const;
  void tell(const At& at, const Slice& slice, std::size_t step);
  std::byte* pinnedImage(const Slice& slice) const { return pinned_.get() + slice.stagingOffset; }

  Loop& loop_;
  Tells tells_;
  const Accelerator::Memory pinned_;
  const Accelerator::Memory words_;
  const Gates gates_;
  const std::shared_ptr<DeviceExchange> exchange_;
  const std::shared_ptr<const SliceBody> pinnedBody_;
};

}  // namespace fairring
