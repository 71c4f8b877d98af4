// A Member's messages: what their connections and their peers' ends mean to the group.
#include <cassert>

#include "group/member.h"

namespace fairring {

void Member::send(Sending sending) {
  assert(loop_.isCurrent());
  isOver() ? sending.done(verdictOnMessages()) : messages_->send(std::move(sending));
}

void Member::receive(Receiving receiving) {
  assert(loop_.isCurrent());
  isOver() ? receiving.done(verdictOnMessages(), -1) : messages_->receive(std::move(receiving));
}

// A message's end may make another, behind the task that closes this member.
Error Member::verdictOnMessages() const { return error_ ? error_ : diagnostics_.unfinished("a message"); }

bool Member::isNeighbour(int peer) const {
  return linking_ != Linking::None && (neighbours_.isLocal(peer) || neighbours_.rails().contains(peer));
}

void Member::loseMessages(int peer, const Error& error) {
  if (hasFailed()) return;
  messages_->lose(peer, error);
  leaveIfAsked();
}

}  // namespace fairring
