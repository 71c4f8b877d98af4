// The progress that ranks tell each other with every heartbeat: how many calls each has made, their hash, which rank
// that it knows of is furthest behind, and which neighbour has been silent for longest. So ranks whose calls differ
// learn it without exchanging payload, and a trace of a stuck job can name the rank that everybody waits for, though it
// may be no neighbour. Where ranks are further than two ways apart, since all plans are in groups of
// machines, they pass that on. A beat says too what its rank's clock showed: a trace of several machines needs one
// clock (fairring/trace/clock.py). Any thread: heartbeats leave from another thread than that of the slices.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/loop.h"
#include "group/call_table.h"

namespace fairring {

class PeerProgress {
 public:
  struct Progress {
    int rank = -1;
    std::uint64_t calls = 0;
    std::string last;  // the text of its last call

    static void fields(auto& row, auto& progress) { row(progress.rank, progress.calls, progress.last); }
  };
  struct Silence {  // of the neighbour that has been silent for longest; its rank is -1 where there is none
    int rank = -1;
    std::int64_t nanoseconds = 0;  // since its last beat

    static void fields(auto& row, auto& silence) { row(silence.rank, silence.nanoseconds); }
  };
  struct Beat {  // what a heartbeat says
    Progress own;
    std::uint64_t hash = 0;      // of its rank's calls
    Progress behind;             // of whom its rank knows, who is furthest behind; its rank is -1 where there is none
    std::uint32_t passedOn = 0;  // so many ranks have passed that on since a neighbour of that one said it
    std::int64_t sent = 0;       // its loop's time there
    Silence silence;

    static void fields(auto& row, auto& beat) {
      row(beat.own, beat.hash, beat.behind, beat.passedOn, beat.sent, beat.silence);
    }
  };

  // This rank's knowledge about another rank: from that rank's own beats, or from the neighbour `by`.
  struct Sighting {
    int by = -1;
    int rank = -1;
    std::optional<Progress> progress;
    std::optional<std::int64_t> silent;  // nanoseconds
  };

  // passesOn: how many ranks at most pass on what one says of its neighbour.
  PeerProgress(int rank, const CallTable& calls, const Loop& loop, std::uint32_t passesOn = 0)
      : rank_(rank), calls_(calls), loop_(loop), passesOn_(passesOn) {}

  void met(int peer);               // it is a neighbour, whose silence counts from now on
  Beat beat() const;                // for all neighbours
  bool heard(int peer, Beat beat);  // false: the peer has made other calls than this rank
  // By neighbour, the least, over its last beats, of this rank's clock at a beat's arrival minus its own clock at
  // sending. Nanoseconds: what the clocks differ by, plus the way of the quickest beat.
  std::map<int, std::int64_t> clockLeads() const;
  std::vector<Sighting> sightings() const;

 private:
  static constexpr std::size_t kLeadsKept = 64;

  struct Said {  // of its neighbours, by one of ours
    Progress behind;
    std::uint32_t passedOn = 0;
    Silence silence;
    std::int64_t heard = 0;  // when; before its first beat: when it was met
  };
  struct Told {
    Progress progress;
    std::uint32_t passedOn = 0;  // by this rank too, where it comes from others
  };

  std::int64_t now() const;
  std::optional<Told> furthestBehind() const;
  Silence longestSilence(std::int64_t now) const;

  const int rank_;
  const CallTable& calls_;
  const Loop& loop_;  // whose time it is
  const std::uint32_t passesOn_;
  mutable std::mutex mutex_;                       // guards all below
  std::map<int, Progress> neighbours_;             // as they say of themselves
  std::map<int, std::deque<std::int64_t>> leads_;  // by neighbour, of its last beats
  std::map<int, Said> secondHand_;                 // by the rank that said it, in its last beat
};

}  // namespace fairring
