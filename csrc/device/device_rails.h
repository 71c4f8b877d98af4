// What of a slice's chain goes between machines: the caller's part of it, with the loop's behind exchange(). By the
// rails of the loop, from pinned memory, behind gates (gated_rails.h), or by the device itself (direct_rails.h).
// Callers, one at a time, from device_chain.h. Throws Failure, as the accelerator does.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/accelerator.h"
#include "device/device_exchange.h"
#include "exchange/slice.h"
#include "exchange/transfer.h"

namespace fairring {

class DeviceRails {
 public:
  virtual ~DeviceRails() = default;

  virtual std::shared_ptr<DeviceExchange> exchange() const = 0;

  // A slice with its place in the device's staging, which takes so many bytes; before anything of it is enqueued.
  virtual void announce(const Slice& slice, std::uint64_t stagingBytes, bool last) = 0;
  // The steps above level 0, behind its reduce-scatter: this rank's shard of the image -> the same, reduced over the
  // machines and divided.
  virtual void enqueue(Accelerator& accelerator, Accelerator::Stream stream, const Slice& slice) = 0;
  virtual void endSlice(Accelerator& accelerator, Accelerator::Stream stream, const Slice& slice) = 0;
  virtual void endCall(Accelerator& accelerator, const Accelerator::Event& end) = 0;

 protected:
  // What a reducing step has brought, by the device.
  static void sum(Accelerator& accelerator, Accelerator::Stream stream, const Slice& slice, std::size_t step,
                  const std::vector<Transfer>& transfers);
};

}  // namespace fairring
