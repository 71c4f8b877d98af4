// A Member's calls on a device: the pipeline carries them out, between the device's streams and the rails.
#include <cassert>
#include <utility>

#include "group/member.h"

namespace fairring {

static_assert(SharedMemory::kMostSlices <= Gates::kLines);  // of one queue in flight, and the gates that there are

void Member::guard(std::shared_ptr<DeviceExchange> device, std::function<void()> abortDevice) {
  assert(loop_.isCurrent() && !device_);
  // It has begun already, by awaitDevice(), with the call's timeout.
  link({});
  device_ = std::move(device);
  abortDevice_ = std::move(abortDevice);
  if (hasFailed()) return letDeviceGo();
  addStagingOfDevice();
  device_->attach(*pipeline_, *rails_);
}

// Without it the calls are as good, and slower.
void Member::addStagingOfDevice() {
  try {
    for (const auto& [peer, channel] : rails_->channels()) channel->addStaging(device_->staging());
  } catch (const Failure& failure) {
    if (settings_.warn)
      settings_.warn(concat("RDMA copies what it carries of calls on a device's tensors: ", failure.what()));
  }
}

void Member::letDeviceGo() {
  if (settings_.endsProcess && settings_.endsProcess(error_)) return;
  device_->openForEver();
  if (abortDevice_) settings_.offLoop(std::exchange(abortDevice_, nullptr));
}

void Member::beginOnDevice(Call call, const CallRecord& entered) {
  assert(loop_.isCurrent());
  attempt(call, entered.number, [&] {
    call.done = [this, number = entered.number](const Error& error) {
      ended(number, error);
      if (deviceIsIdle_ && !pipeline_->hasCalls(SliceQueue::Device)) std::exchange(deviceIsIdle_, nullptr)();
    };
    pipeline_->submitOnDevice(std::move(call));
  });
}

void Member::whenDeviceIsIdle(std::function<void()> idle) {
  assert(loop_.isCurrent());
  if (!pipeline_ || !pipeline_->hasCalls(SliceQueue::Device)) return idle();
  deviceIsIdle_ = std::move(idle);
}

}  // namespace fairring
