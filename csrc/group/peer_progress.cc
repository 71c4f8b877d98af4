#include "group/peer_progress.h"

#include <algorithm>
#include <chrono>

namespace fairring {

namespace {

bool isFurtherBehind(const PeerProgress::Progress& a, const PeerProgress::Progress& b) { return a.calls < b.calls; }

}  // namespace

std::int64_t PeerProgress::now() const { return std::chrono::nanoseconds(loop_.now().time_since_epoch()).count(); }

std::optional<PeerProgress::Progress> PeerProgress::furthestBehind() const {
  const auto found = std::ranges::min_element(
      neighbours_, [](const auto& a, const auto& b) { return isFurtherBehind(a.second, b.second); });
  return found == neighbours_.end() ? std::nullopt : std::optional(found->second);
}

PeerProgress::Silence PeerProgress::longestSilence(std::int64_t now) const {
  Silence longest;
  for (const auto& [peer, said] : secondHand_) {
    if (longest.rank < 0 || now - said.heard > longest.nanoseconds) longest = {peer, now - said.heard};
  }
  return longest;
}

PeerProgress::Beat PeerProgress::beat() const {
  const CallLog::Entry own = callLog_.last();
  const std::lock_guard lock(mutex_);
  const std::int64_t now = this->now();
  return {.own = {rank_, own.number, own.text.str()},
          .hash = own.hash,
          .behind = furthestBehind().value_or(Progress{}),
          .sent = now,
          .silence = longestSilence(now)};
}

bool PeerProgress::heard(int peer, Beat beat) {
  const std::int64_t now = this->now();
  beat.own.rank = peer;
  {
    const std::lock_guard lock(mutex_);
    neighbours_[peer] = beat.own;
    std::deque<std::int64_t>& leads = leads_[peer];
    leads.push_back(now - beat.sent);
    if (leads.size() > kLeadsKept) leads.pop_front();
    secondHand_[peer] = {beat.behind, beat.silence, now};
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
    // This rank knows better about itself and its neighbours.
    if (said.behind.rank < 0 || said.behind.rank == rank_ || neighbours_.contains(said.behind.rank)) continue;
    if (!behind || isFurtherBehind(said.behind, *behind)) behind = said.behind;
  }
  return behind && behind->calls < own ? behind : std::nullopt;
}

std::vector<PeerProgress::Sighting> PeerProgress::sightings() const {
  const std::int64_t now = this->now();
  const std::lock_guard lock(mutex_);
  std::vector<Sighting> all;
  for (const auto& [peer, said] : secondHand_) {
    const std::int64_t ago = now - said.heard;
    all.push_back({rank_, peer, neighbours_.at(peer), ago});
    const int behind = said.behind.rank;
    if (behind >= 0 && behind != rank_ && !neighbours_.contains(behind))
      all.push_back({peer, behind, said.behind, std::nullopt});
    const int silent = said.silence.rank;
    if (silent >= 0 && silent != rank_ && !neighbours_.contains(silent))
      all.push_back({peer, silent, std::nullopt, said.silence.nanoseconds + ago});
  }
  return all;
}

}  // namespace fairring
