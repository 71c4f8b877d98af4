// The rails of a device's slices as the loop has them: shards are copied to pinned memory, the loop exchanges them with
// other machines, and the device sums what comes. Streams wait for the loop at gates, the loop for streams by what they
// tell (device_exchange.h).
//
// It can't deadlock, even where all streams share one queue of the device: a gate waits for this rank's loop alone, and
// that for nothing but earlier work, here and on the peers: the peers' own chains up to the same slice.
//
// Pinned staging has the offsets of the device's. Its places are guarded by the slice's first gate.
// Callers, one at a time, from device_chain.h. Throws Failure, as the accelerator does.
#pragma once

#include <cstdint>
#include <memory>

#include "base/loop.h"
#include "device/accelerator.h"
#include "device/device_exchange.h"
#include "device/gates.h"
#include "device/told_words.h"
#include "exchange/slice.h"

namespace fairring {

class GatedRails {
 public:
  // Memory is the accelerator's; the loop outlives it.
  GatedRails(Accelerator& accelerator, std::uint64_t stagingBytes, Loop& loop);

  std::shared_ptr<DeviceExchange> exchange() const { return exchange_; }

  // A slice with its place in the device's staging, and the stream that is to have it; before anything of it is
  // enqueued.
  void announce(const Slice& slice, const Pipeline::Placement& placement, Accelerator::Stream stream);
  // The steps above level 0, behind its reduce-scatter: this rank's shard of the image -> the same, reduced over the
  // machines and divided.
  void enqueue(Accelerator& accelerator, Accelerator::Stream stream, const Slice& slice);
  void endSlice(Accelerator& accelerator, Accelerator::Stream stream);

 private:
  struct At {  // where of a device the slice stands
    Accelerator& accelerator;
    Accelerator::Stream stream;
  };
  void enqueueStep(const At& at, const Slice& slice, std::size_t step);
  void copyOut(const At& at, const Slice& slice, const Range& range) const;
  void copyIn(const At& at, const Slice& slice, const Range& range) const;
  static void sum(const At& at, const Slice& slice, std::size_t step);
  void await(const At& at, const Slice& slice, std::size_t gate) const;
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
