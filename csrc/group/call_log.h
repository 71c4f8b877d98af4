// The collective calls that this rank has made in one group: how many, a running hash of their signatures, and the
// last ones as text. Two ranks whose hashes differ at a call have made different calls up to there; the texts say which
// was the first. Any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/call.h"
#include "exchange/recorder.h"

namespace fairring {

class CallLog {
 public:
  static constexpr std::size_t kKept = 64;
  static constexpr std::size_t kMaxText = 240;  // bytes of a call's text; the rest is cut

  struct Entry {
    std::uint64_t number = 0;  // 1, 2, ...; 0: no call yet
    std::uint64_t hash = 0;    // of this call and all before it
    Text text;
    std::int64_t made = 0;  // when, as now() has it
  };

  using Now = std::function<std::int64_t()>;  // the time of the loop that carries the calls out, in nanoseconds
  explicit CallLog(Now now = Recorder::now) : now_(std::move(now)) {}

  Entry record(const Signature& signature);
  Entry last() const;
  std::uint64_t count() const;
  // Whether a peer's call is another than ours of that number. False where this rank has not made it, or not kept it.
  bool differs(std::uint64_t number, std::uint64_t hash) const;

  struct Told {  // a call as peers are told of it
    std::uint64_t number = 0;
    std::uint64_t hash = 0;
    std::string text;

    static void fields(auto& row, auto& call) { row(call.number, call.hash, call.text); }
  };
  // The calls that are kept: less than 32 KiB as text.
  std::vector<Told> kept() const;
  struct Difference {
    std::uint64_t number;
    std::string here;
    std::string there;
    bool first;  // of all calls, as far as both have kept them
  };
  // The first call at which a peer's calls and these part; nothing where they agree as far as both reach.
  std::optional<Difference> differenceTo(const std::vector<Told>& peers) const;

 private:
  const Now now_;             // from any thread
  mutable std::mutex mutex_;  // guards entries_
  std::deque<Entry> entries_;
};

}  // namespace fairring
