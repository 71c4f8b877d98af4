// A Member's calls on a device: the scheduler carries them out, between the device's streams and the rails.
#include <cassert>
#include <utility>

#include "group/member.h"

namespace fairring {

void Member::guard(std::shared_ptr<DeviceCalls> calls, std::function<void()> abortDevice) {
  assert(loop_.isCurrent() && !deviceCalls_);
  link();
  deviceCalls_ = std::move(calls);
  deviceCalls_->onProgress = [this] { acknowledgeLeaves(); };
  abortDevice_ = std::move(abortDevice);
  if (error_) {
    deviceCalls_->fail(error_);
    settings_.offLoop(abortDevice_);
  } else if (open_) {
    deviceCalls_->open(*rails_);
  }
}

void Member::beginOnDevice(Call call, const CallLog::Entry& entry) {
  assert(loop_.isCurrent());
  link();
  if (error_) return call.done(error_);
  Call timedCall = timed(std::move(call), entry);
  timedCall.done = [this, done = std::move(timedCall.done)](const Error& error) {
    done(error);
    if (deviceIsIdle_ && !deviceCalls_->hasCalls()) std::exchange(deviceIsIdle_, nullptr)();
  };
  deviceCalls_->begin(std::move(timedCall));
}

void Member::whenDeviceIsIdle(std::function<void()> idle) {
  assert(loop_.isCurrent());
  if (!deviceCalls_->hasCalls()) return idle();
  deviceIsIdle_ = std::move(idle);
}

}  // namespace fairring
