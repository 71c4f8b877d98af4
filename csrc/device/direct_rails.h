// The rails of a device's slices where the device has its own: it sends shards to other machines' devices and sums what
// they send, all in the slice's stream. The plans, the owners and the order of sums are those of the loop's rails, so
// the bits are too. No gate and no staging of the host's: the host only enqueues, and hears of a call's end.
#pragma once

#include <memory>
#include <vector>

#include "base/loop.h"
#include "device/device_rails.h"
#include "device/enqueued_calls.h"
#include "device/tells.h"

namespace fairring {

class DirectRails final : public DeviceRails {
 public:
  DirectRails(Accelerator& accelerator, Loop& loop) : tells_(accelerator, loop) {}  // the loop outlives it

  std::shared_ptr<DeviceCalls> calls() const override { return calls_; }
  void announce(const Slice&, std::uint64_t, bool) override {}
  void enqueue(Accelerator& accelerator, Accelerator::Stream stream, const Slice& slice) override;
  void endSlice(Accelerator&, Accelerator::Stream, const Slice&) override {}
  void endCall(Accelerator& accelerator, const std::vector<Accelerator::Event>& ends) override;

 private:
  Tells tells_;
  const std::shared_ptr<EnqueuedCalls> calls_ = std::make_shared<EnqueuedCalls>(tells_.words());
};

}  // namespace fairring
