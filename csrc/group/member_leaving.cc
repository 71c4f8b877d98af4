// How a Member ends in good order, and what it does for peers that end.
#include <cassert>

#include "group/member.h"

namespace fairring {

void Member::onLeave(int peer, const std::string& slices) {
  leaveProtocol_.heard(peer, decodeLeave(slices));
  acknowledgeLeaves();
}

void Member::acknowledgeLeaves() {
  const auto needs = [this](int peer, const Watermarks& slicesBelow) {
    return !error_ && (machine_->needs(peer, slicesBelow.host) || (rails_ && rails_->needs(peer, slicesBelow)));
  };
  for (const int peer : leaveProtocol_.answerable(needs)) {
    control_->send(peer, ControlType::LeaveAck, "");
    if (!error_) machine_->leave(peer);
    if (!error_ && rails_) rails_->leave(peer);
  }
}

const Call* Member::oldestCall() const {
  if (pipeline_ && pipeline_->hasCalls()) return pipeline_->oldestCall();
  return deviceScheduler_ ? deviceScheduler_->oldestCall() : nullptr;
}

void Member::leave(std::function<void()> left) {
  assert(loop_.isCurrent());
  if (const Call* call = oldestCall()) fail(diagnostics_.unfinished(call->signature.text.str()));
  if (const DelegatedCall* call = delegated_.anyCompared()) fail(diagnostics_.unfinished(call->signature.text.str()));
  if (!error_ && !open_) {  // calls that others carry out can end before the connections are there
    leaving_ = std::move(left);
    return;
  }
  std::set<int> peers;
  if (!error_) {
    peers = control_->peers();
    Watermarks completed{.host = pipeline_->completedBelow()};
    if (deviceScheduler_) completed.device = deviceScheduler_->completedBelow();
    control_->sendToAll(ControlType::Leave, encodeLeave(completed));
  }
  leaveProtocol_.said(peers, std::move(left));
}

void Member::close() {
  assert(loop_.isCurrent());
  loop_.forgetUncaught(this);
  connector_.reset();
  probe_.reset();
  control_.reset();  // before what it sends the descriptors of
  pipeline_.reset();
  if (deviceScheduler_) deviceScheduler_->fail(makeError(ErrorKind::Aborted, "rank ", rank_, " ended its group"));
  deviceScheduler_.reset();
  channels_.reset();
  rails_.reset();
  machine_.reset();
  deadlines_.close();
  delegated_.close();
}

}  // namespace fairring
