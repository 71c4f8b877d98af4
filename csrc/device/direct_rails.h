// The rails of a device's slices where the device has its own: it sends shards to other machines' devices and sums what
// they send, all in the slice's stream. The plans, the owners and the order of sums are those of the loop's rails, so
// the bits are too. No gate and no staging of the host's: the host only enqueues, and hears of a call's end. For the
// loop a call is one slice with one step, which takes no staging.
#pragma once

#include <memory>
#include <vector>

#include "base/loop.h"
#include "device/device_rails.h"
#include "device/gates.h"
#include "device/tells.h"

namespace fairring {

class DirectRails final : public DeviceRails {
 public:
  DirectRails(Accelerator& accelerator, Loop& loop);  // the loop outlives it

  std::shared_ptr<DeviceExchange> exchange() const override { return exchange_; }
  void announce(const Slice&, std::uint64_t, bool) override {}
  void enqueue(Accelerator& accelerator, Accelerator::Stream stream, const Slice& slice) override;
  void endSlice(Accelerator&, Accelerator::Stream, const Slice&) override {}
  void endCall(Accelerator& accelerator, const Accelerator::Event& end) override;

 private:
  Loop& loop_;
  Tells tells_;
  const Accelerator::Memory words_;  // of gates that no stream stands at
  const std::shared_ptr<DeviceExchange> exchange_;
  const std::shared_ptr<const Plan> wholeCall_ = std::make_shared<const Plan>(Plan{{Verb::AllGather, 0}});
  std::uint64_t calls_ = 0;
};

}  // namespace fairring
