#include "group/leave_protocol.h"

#include <cassert>
#include <utility>

namespace fairring {

void LeaveProtocol::heard(int peer, const Completed& completed) {
  gone_.insert(peer);
  unanswered_[peer] = completed;
}

std::vector<int> LeaveProtocol::answerable(const std::function<bool(int peer, const Completed& completed)>& needs) {
  std::vector<int> peers;
  for (const auto& [peer, completed] : unanswered_) {
    if (!needs(peer, completed)) peers.push_back(peer);
  }
  for (const int peer : peers) unanswered_.erase(peer);
  return peers;
}

void LeaveProtocol::ask(std::function<void()> left) {
  assert(stage_ == Stage::Staying);
  stage_ = Stage::Asked;
  left_ = std::move(left);
}

void LeaveProtocol::said(const std::set<int>& peers) {
  assert(stage_ == Stage::Asked);
  stage_ = Stage::Said;
  awaited_.insert(peers.begin(), peers.end());
  leaveIfAnswered();
}

void LeaveProtocol::answered(int peer) {
  awaited_.erase(peer);
  leaveIfAnswered();
}

void LeaveProtocol::giveUp() {
  awaited_.clear();
  if (stage_ == Stage::Asked) stage_ = Stage::Said;
  leaveIfAnswered();
}

void LeaveProtocol::leaveIfAnswered() {
  if (stage_ == Stage::Said && left_ && awaited_.empty()) std::exchange(left_, nullptr)();
}

}  // namespace fairring
