// The loop's half of calls on a device's tensors: the calls that the device has not finished, and what the loop
// does for them. The caller's half (device_chain.h) makes one; the group's member owns its life on the loop.
// On the loop only; made by a caller. It makes no call of the device.
#pragma once

#include <cstdint>
#include <functional>

#include "base/error.h"
#include "engine/call.h"
#include "exchange/exchange.h"

namespace fairring {

class DeviceCalls {
 public:
  virtual ~DeviceCalls() = default;

  virtual void open(Exchange& rails) = 0;     // the group is connected
  virtual void begin(Call call) = 0;          // in the order in which the device has them
  virtual void halt() = 0;                    // the rails have been stopped: nothing moves any more, until fail()
  virtual void fail(const Error& error) = 0;  // ends all calls, and lets the device go on for ever

  virtual bool hasCalls() const = 0;
  virtual std::uint64_t completed() const = 0;  // slices that peers needed this rank's rails for
  virtual const Call* oldestCall() const = 0;

  std::function<void()> onProgress;  // peers may need less of this rank than before
};

}  // namespace fairring
