// The Member's way with a call that takes too long: it finds out who holds it up before the group fails.
#include <algorithm>
#include <cassert>

#include "base/fields.h"
#include "group/member.h"

namespace fairring {

namespace {

constexpr std::size_t kMostAwaited = 1024;  // ranks, in an account

std::vector<int> listed(const std::set<int>& ranks) {
  const auto count = static_cast<std::ptrdiff_t>(std::min(ranks.size(), kMostAwaited));
  return {ranks.begin(), std::next(ranks.begin(), count)};
}

}  // namespace

void Member::onDeadline(const TimedCall& call) {
  late_.push_back({call, {}, [this, number = call.number] { return calls_.underWay(number).has_value(); }});
  inquiry_.begin();
}

void Member::onLate(const TimedCall& call, std::optional<int> peer, const std::function<bool()>& isUnderWay) {
  assert(loop_.isCurrent());
  if (hasFailed() || !control_ || !isUnderWay()) return;
  late_.push_back({call, peer ? std::set<int>{*peer} : control_->peers(), isUnderWay});
  inquiry_.begin();
}

Inquiry::Ways Member::waysToAsk() {
  return {[this] { return account(); },
          [this](int peer) {
            const bool canAnswer = control_->peers().contains(peer) && failureDetector_.hasHeard(peer);
            if (canAnswer) control_->send(peer, ControlType::Question, "");
            return canAnswer;
          },
          [this](int peer, const Account& account) { control_->send(peer, ControlType::Account, toText(account)); },
          [this](const Inquiry::Findings& findings) { onConcluded(findings); }};
}

// Only messages that its program waits for count: a receive may stand ready while it computes.
Account Member::account() const {
  const CallRecord last = calls_.last();
  Account account;
  account.rank = rank_;
  account.calls = last.number;
  account.last = last.text.str();
  if (const auto oldest = calls_.oldestUnderWay()) {
    account.inCall = oldest->number;
    account.call = oldest->text.str().substr(0, CallTable::kMaxText);
    account.isOnDevice = linking_ == Linking::Complete && pipeline_->awaitsInputs(oldest->number);
    const std::set<int> awaited = missing();
    if (!account.isOnDevice) account.waitsFor = listed(awaited.empty() ? control_->peers() : awaited);
  }
  std::set<int> messagesOf;
  for (const MessageWait& wait : messages_->waits()) {
    if (!wait.isAwaited) continue;
    wait.peer ? void(messagesOf.insert(*wait.peer)) : messagesOf.merge(std::set<int>(control_->peers()));
  }
  for (const Late& late : late_) messagesOf.insert(late.peers.begin(), late.peers.end());
  account.messagesOf = listed(messagesOf);
  return account;
}

void Member::onConcluded(const Inquiry::Findings& findings) {
  const auto late = std::ranges::find_if(late_, [](const Late& one) { return one.isUnderWay(); });
  const bool isOver = late == late_.end();
  const Late first = isOver ? Late{} : *late;
  late_.clear();
  if (!isOver) fail(diagnostics_.late(first.call, findings, first.peers.empty() ? missing() : first.peers));
}

}  // namespace fairring
