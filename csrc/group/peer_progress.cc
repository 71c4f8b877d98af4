#include "group/peer_progress.h"

#include <algorithm>
#include <chrono>

namespace fairring {

std::int64_t PeerProgress::now() const { return std::chrono::nanoseconds(loop_.now().time_since_epoch()).count(); }

// This rank knows better about itself and its neighbours. Of what others say of a rank, the most calls are the latest.
std::optional<PeerProgress::Told> PeerProgress::furthestBehind() const {
  std::map<int, Told> known;
  for (const auto& [peer, progress] : neighbours_) known[peer] = {progress, 0};
  for (const auto& [peer, said] : secondHand_) {
    const int rank = said.behind.rank;
    if (rank < 0 || rank == rank_ || neighbours_.contains(rank) || said.passedOn >= passesOn_) continue;
    const Told told{said.behind, said.passedOn + 1};
    const auto [found, isNew] = known.try_emplace(rank, told);
    if (!isNew && told.progress.calls > found->second.progress.calls) found->second = told;
  }
  const auto furthest = std::ranges::min_element(
      known, [](const auto& a, const auto& b) { return a.second.progress.calls < b.second.progress.calls; });
  return furthest == known.end() ? std::nullopt : std::optional(furthest->second);
}

PeerProgress::Silence PeerProgress::longestSilence(std::int64_t now) const {
  Silence longest;
  for (const auto& [peer, said] : secondHand_) {
    if (longest.rank < 0 || now - said.heard > longest.nanoseconds) longest = {peer, now - said.heard};
  }
  return longest;
}

void PeerProgress::met(int peer) {
  const std::int64_t now = this->now();
  const std::lock_guard lock(mutex_);
  secondHand_.try_emplace(peer, Said{{}, 0, {}, now});
}

PeerProgress::Beat PeerProgress::beat() const {
  const CallRecord own = calls_.last();
  const std::lock_guard lock(mutex_);
  const std::int64_t now = this->now();
  const Told behind = furthestBehind().value_or(Told{});
  return {.own = {rank_, own.number, own.text.str()},
          .hash = own.hash,
          .behind = behind.progress,
          .passedOn = behind.passedOn,
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
    secondHand_[peer] = {beat.behind, beat.passedOn, beat.silence, now};
  }
  return !calls_.differs(beat.own.calls, beat.hash);
}

std::map<int, std::int64_t> PeerProgress::clockLeads() const {
  const std::lock_guard lock(mutex_);
  std::map<int, std::int64_t> least;
  for (const auto& [peer, leads] : leads_) least[peer] = *std::ranges::min_element(leads);
  return least;
}

std::vector<PeerProgress::Sighting> PeerProgress::sightings() const {
  const std::int64_t now = this->now();
  const std::lock_guard lock(mutex_);
  std::vector<Sighting> all;
  for (const auto& [peer, said] : secondHand_) {
    const std::int64_t ago = now - said.heard;
    const auto own = neighbours_.find(peer);
    all.push_back({rank_, peer, own == neighbours_.end() ? std::nullopt : std::optional(own->second), ago});
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
