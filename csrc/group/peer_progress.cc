#include "group/peer_progress.h"

#include <algorithm>
#include <sstream>

#include "base/error.h"

namespace fairring {

namespace {

// Three lines: calls and hash; rank and calls of who is furthest behind; the texts of their last calls.
struct Beat {
  PeerProgress::Progress own;
  std::uint64_t hash = 0;
  PeerProgress::Progress behind;
};

std::optional<Beat> decode(const std::string& text) {
  std::istringstream lines(text);
  Beat beat;
  lines >> beat.own.calls >> beat.hash >> beat.behind.rank >> beat.behind.calls;
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

std::string PeerProgress::beat() const {
  const CallLog::Entry own = callLog_.last();
  const std::lock_guard lock(mutex_);
  const Progress behind = furthestBehind().value_or(Progress{});
  return concat(own.number, ' ', own.hash, ' ', behind.rank, ' ', behind.calls, '\n', own.text, '\n', behind.last);
}

bool PeerProgress::heard(int peer, const std::string& text) {
  auto beat = decode(text);
  if (!beat) return true;
  {
    const std::lock_guard lock(mutex_);
    beat->own.rank = peer;
    neighbours_[peer] = beat->own;
    if (beat->behind.rank >= 0) secondHand_[peer] = beat->behind;
  }
  return !callLog_.differs(beat->own.calls, beat->hash);
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
