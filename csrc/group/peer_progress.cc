#include "group/peer_progress.h"

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "exchange/recorder.h"

namespace fairring {

namespace {

// A line of numbers: calls and hash; rank and calls of who is furthest behind; the clock; who has been silent for
// longest, and for how long. Then the texts of their last calls, a line each.
struct Beat {
  PeerProgress::Progress own;
  std::uint64_t hash = 0;
  PeerProgress::Progress behind;
  std::int64_t sent = 0;  // Recorder::now() there
  PeerProgress::Silence silence;
};

std::optional<Beat> decode(const std::string& text) {
  std::istringstream lines(text);
  Beat beat;
  lines >> beat.own.calls >> beat.hash >> beat.behind.rank >> beat.behind.calls >> beat.sent >> beat.silence.rank >>
      beat.silence.nanoseconds;
  if (lines.fail()) return std::nullopt;
  std::getline(lines, beat.own.last);  // what is left of the numbers' line
  std::getline(lines, beat.own.last);
  std::getline(lines, beat.behind.last);
  return beat;
}

bool isFurtherBehind(const PeerProgress::Progress& a, const PeerProgress::Progress& b) { return a.calls < b.calls; }

}  // namespace

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

std::string PeerProgress::beat() const {
  const CallLog::Entry own = callLog_.last();
  const std::lock_guard lock(mutex_);
  const Progress behind = furthestBehind().value_or(Progress{});
  const std::int64_t now = Recorder::now();
  const Silence silence = longestSilence(now);
  return concat(own.number, ' ', own.hash, ' ', behind.rank, ' ', behind.calls, ' ', now, ' ', silence.rank, ' ',
                silence.nanoseconds, '\n', own.text, '\n', behind.last);
}

bool PeerProgress::heard(int peer, const std::string& text) {
  const std::int64_t now = Recorder::now();
  auto beat = decode(text);
  if (!beat) return true;
  {
    const std::lock_guard lock(mutex_);
    beat->own.rank = peer;
    neighbours_[peer] = beat->own;
    std::deque<std::int64_t>& leads = leads_[peer];
    leads.push_back(now - beat->sent);
    if (leads.size() > kLeadsKept) leads.pop_front();
    secondHand_[peer] = {beat->behind, beat->silence, now};
  }
  return !callLog_.differs(beat->own.calls, beat->hash);
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
    if (said.behind.rank < 0 || said.behind.rank == rank_ || neighbours_.contains(said.behind.rank)) continue;
    if (!behind || isFurtherBehind(said.behind, *behind)) behind = said.behind;
  }
  return behind && behind->calls < own ? behind : std::nullopt;
}

std::vector<PeerProgress::Sighting> PeerProgress::sightings() const {
  const std::int64_t now = Recorder::now();
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
