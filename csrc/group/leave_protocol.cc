#include "group/leave_protocol.h"

#include <sstream>
#include <utility>

#include "base/error.h"

namespace fairring {

std::string encodeLeave(const Completed& completed) {
  std::string text;
  for (const SliceQueue queue : kSliceQueues)
    text += concat(SliceId{queue, completed.slicesBelow[queue]}.onWire(), " ");
  return concat(text, completed.messages);
}

Completed decodeLeave(const std::string& text) {
  Completed completed;
  std::istringstream words(text);
  for (const SliceQueue queue : kSliceQueues) {
    std::uint64_t number = 0;
    words >> number;
    completed.slicesBelow[queue] = SliceId::fromWire(number).sequence;
  }
  words >> completed.messages;
  return completed;
}

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
