#include "group/peer_progress.h"

#include <algorithm>

#include "exchange/recorder.h"

namespace fairring {

namespace {

bool isFurtherBehind(const PeerProgress::Progress& a, const PeerProgress::Progress& b) { return a.calls < b.calls; }

}  // namespace

std::optional<PeerProgress::Progress> PeerProgress::furthestBehind() const {
  const auto found = std::ranges::min_element(
      neighbours_, [](const auto& a, const auto& b) { return isFurtherBehind(a.second, b.second); });
  return found == neighbours_.end() ? std::nullopt : std::optional(found->second);
}

PeerProgress::Beat PeerProgress::beat() const {
  const CallLog::Entry own = callLog_.last();
  const std::lock_guard lock(mutex_);
  return {{rank_, own.number, own.text.str()}, own.hash, furthestBehind().value_or(Progress{}), Recorder::now()};
}

bool PeerProgress::heard(int peer, Beat beat) {
  const std::int64_t now = Recorder::now();
  beat.own.rank = peer;
  {
    const std::lock_guard lock(mutex_);
    neighbours_[peer] = beat.own;
    std::deque<std::int64_t>& leads = leads_[peer];
    leads.push_back(now - beat.sent);
    if (leads.size() > kLeadsKept) leads.pop_front();
    if (beat.behind.rank >= 0) secondHand_[peer] = beat.behind;
  }
  return !callLog_.differs(beat.own.calls, beat.hash);
}

std::map<int, std::int64_t> PeerProgress::clockLeads() const {
  const std::lock_guard lock(mutex_);
  std::map<int, std::int64_t> least;
  for (const auto& [peer, leads] : leads_) least[peer] = *std::ranges::min_element(leads);
  return least;
}

std::optional<PeerProgress::Progress> PeerProgress::laggard() const {
  const std::uint64_t own = callLog_.last().number;
  const std::lock_guard lock(mutex_);
  std::optional<Progress> behind = furthestBehind();
  for (const auto& [peer, said] : secondHand_) {
    // Of itself and of its neighbours this rank knows better.
    if (said.rank == rank_ || neighbours_.contains(said.rank)) continue;
    if (!behind || isFurtherBehind(said, *behind)) behind = said;
  }
  return behind && behind->calls < own ? behind : std::nullopt;
}

}  // namespace fairring
