// How a Member ends in good order, and what it does for peers that end.
#include <cassert>

#include "base/fields.h"
#include "group/member.h"

namespace fairring {

void Member::onLeave(int peer, const Completed& completed) {
  leaveProtocol_.heard(peer, completed);
  acknowledgeLeaves();
}

void Member::acknowledgeLeaves() {
  const auto needs = [this](int peer, const Completed& completed) {
    const Watermarks& slicesBelow = completed.slicesBelow;
    // A root can have done its part of a call that this rank has yet to make.
    const bool isBehind = pipeline_ && leaveProtocol_.isStaying() && !pipeline_->hasBegun(slicesBelow);
    return !hasFailed() && (isBehind || (machine_ && machine_->needs(peer, slicesBelow)) ||
                            (rails_ && rails_->needs(peer, slicesBelow)) || messages_->needs(peer, completed.messages));
  };
  for (const int peer : leaveProtocol_.answerable(needs)) {
    control_->send(peer, ControlType::LeaveAck, "");
    if (!hasFailed() && machine_) machine_->leave(peer);
    if (!hasFailed() && rails_) rails_->leave(peer);
    if (!hasFailed()) messages_->leave(peer, left(peer));
  }
  if (pipeline_ && leaveProtocol_.hasUnanswered()) pipeline_->onNextProgress = [this] { acknowledgeLeaves(); };
}

Error Member::left(int peer) const { return diagnostics_.left(peer, !leaveProtocol_.isAnswered(peer)); }

const Call* Member::oldestCall() const { return pipeline_ ? pipeline_->oldestCall() : nullptr; }

void Member::endUnfinished() {
  assert(loop_.isCurrent());
  if (const Call* call = oldestCall()) fail(diagnostics_.unfinished(call->signature.text.str()));
}

void Member::leave(std::function<void()> left) {
  assert(loop_.isCurrent());
  endUnfinished();
  leaveProtocol_.ask(std::move(left));
  if (!hasFailed()) return leaveIfAsked();
  acknowledgeLeaves();
  leaveProtocol_.giveUp();
}

void Member::sayLeave(int peer) {
  Completed completed{.slicesBelow = {}, .messages = messages_->sentTo(peer)};
  if (pipeline_) completed.slicesBelow = pipeline_->completed();
  control_->send(peer, ControlType::Leave, toText(completed));
}

// Messages can have been sent, or received, before the control connection that tells a leave from a death is there.
bool Member::canLeave() const {
  return (linking_ == Linking::None || (linking_ == Linking::Complete && connector_->missing().empty())) &&
         messages_->unreached().empty();
}

void Member::leaveIfAsked() {
  if (!leaveProtocol_.isAsked() || !canLeave()) return;
  const std::set<int> peers = control_->peers();
  for (const int peer : peers) sayLeave(peer);
  acknowledgeLeaves();
  leaveProtocol_.said(peers);
}

void Member::dropParts() {
  loop_.forgetUncaught(this);
  messages_.reset();
  opening_.reset();
  connector_.reset();
  probe_.reset();
  control_.reset();  // before what it sends the descriptors of
}

void Member::close() {
  assert(loop_.isCurrent());
  become(Life::Closed);
  if (messages_) messages_->fail(diagnostics_.unfinished("a message"));
  dropParts();
  if (device_) device_->openForEver();
  device_.reset();
  pipeline_.reset();
  calls_.close();  // what a call does at its end may own this member
  rails_.reset();
  machine_.reset();
  failureDetector_.close();
  inquiry_.close();
  late_.clear();
}

}  // namespace fairring
