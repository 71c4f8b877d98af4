#include "group/leave_protocol.h"

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

void LeaveProtocol::said(const std::set<int>& peers, std::function<void()> left) {
  awaited_.insert(peers.begin(), peers.end());
  left_ = std::move(left);
  leaveIfAnswered();
}

void LeaveProtocol::answered(int peer) {
  awaited_.erase(peer);
  leaveIfAnswered();
}

void LeaveProtocol::giveUp() {
  awaited_.clear();
  leaveIfAnswered();
}

void LeaveProtocol::leaveIfAnswered() {
  if (left_ && awaited_.empty()) std::exchange(left_, nullptr)();
}

}  // namespace fairring
