// A Member's calls on a device: the gatekeeper carries them out, between the device's streams and the rails.
#include <cassert>
#include <utility>

#include "group/member.h"

namespace fairring {

void Member::guard(std::shared_ptr<Gatekeeper> gatekeeper, std::function<void()> abortDevice) {
  assert(loop_.isCurrent() && !gatekeeper_);
  gatekeeper_ = std::move(gatekeeper);
  gatekeeper_->onProgress = [this] { acknowledgeLeaves(); };
  abortDevice_ = std::move(abortDevice);
  if (error_) {
    gatekeeper_->fail(error_);
    settings_.offLoop(abortDevice_);
  } else if (open_) {
    gatekeeper_->open(rails_->device());
  }
}

void Member::beginOnDevice(Call call, const CallLog::Entry& entry) {
  assert(loop_.isCurrent());
  if (error_) return call.done(error_);
  Call timedCall = timed(std::move(call), entry.number);
  timedCall.done = [this, done = std::move(timedCall.done)](const Error& error) {
    done(error);
    if (deviceIsIdle_ && !gatekeeper_->hasCalls()) std::exchange(deviceIsIdle_, nullptr)();
  };
  gatekeeper_->begin(std::move(timedCall));
}

void Member::whenDeviceIsIdle(std::function<void()> idle) {
  assert(loop_.isCurrent());
  if (!gatekeeper_->hasCalls()) return idle();
  deviceIsIdle_ = std::move(idle);
}

}  // namespace fairring
