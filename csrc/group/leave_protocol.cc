#include "group/leave_protocol.h"

#include <sstream>
#include <utility>

#include "base/error.h"

namespace fairring {

std::string encodeLeave(const Watermarks& slicesCompleted) {
  const auto& [host, device] = slicesCompleted;
  return concat(host[TrafficClass::Bulk], " ", host[TrafficClass::Express], " ", device);
}

Watermarks decodeLeave(const std::string& text) {
  Watermarks completed;
  std::istringstream(text) >> completed.host[TrafficClass::Bulk] >> completed.host[TrafficClass::Express] >>
      completed.device;
  return completed;
}

void LeaveProtocol::heard(int peer, const Watermarks& slicesCompleted) {
  gone_.insert(peer);
  unanswered_[peer] = slicesCompleted;
}

std::vector<int> LeaveProtocol::answerable(const std::function<bool(int peer, const Watermarks& slicesBelow)>& needs) {
  std::vector<int> peers;
  for (const auto& [peer, slices] : unanswered_) {
    if (!needs(peer, slices)) peers.push_back(peer);
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
