// The collective calls that this rank has made in one group. Each is entered once, by its caller, and its row holds all
// that is known of it: number, hash, text, when it must be over, who is told that it is, and whether it is complete
// here. The row stays until the call is over, and longer where it is among the last ones.
//
// Ranks compare the hashes: two whose hashes differ at a call have made different calls up to there, and the texts say
// which was the first. Survivors of a failure agree on the calls that are complete everywhere (group/agreement.h).
//
// Any thread enters calls and reads what was entered. All else is on the loop only. The mutex is held for short:
// the longest for a trace, and never while a `done` runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/loop.h"
#include "engine/call.h"

namespace fairring {

struct TimedCall {
  std::uint64_t number = 0;  // in the group's calls; 0: not counted there
  Text text;
  std::chrono::milliseconds timeout{0};  // 0: none
};

class CallTable {
 public:
  static constexpr std::size_t kTold = 64;  // to peers
  static constexpr std::size_t kKept = std::size_t{1} << 12;
  static constexpr std::size_t kMaxText = 240;  // bytes of a call's text; the rest is cut

  using Done = std::function<void(const Error&)>;
  using Expired = std::function<void(const TimedCall&)>;  // it is under way, and its time is over

  // kept: how many of the last calls stay when they are over.
  explicit CallTable(Loop& loop, Expired expired = nullptr, std::size_t kept = kKept)
      : loop_(loop), expired_(std::move(expired)), kept_(kept) {}
  CallTable(const CallTable&) = delete;
  CallTable& operator=(const CallTable&) = delete;
  ~CallTable() = default;  // after close(), where calls have begun; then anywhere

  // ---- any thread

  CallRecord enter(const Signature& signature);
  CallRecord last() const;
  std::uint64_t count() const;
  // Whether a peer's call is another than ours of that number. False where this rank has not made it, or no peer is
  // told of it any more.
  bool differs(std::uint64_t number, std::uint64_t hash) const;

  struct Told {  // a call as peers are told of it
    std::uint64_t number = 0;
    std::uint64_t hash = 0;
    std::string text;

    static void fields(auto& row, auto& call) { row(call.number, call.hash, call.text); }
  };
  std::vector<Told> told() const;  // less than 32 KiB as text
  struct Difference {
    std::uint64_t number;
    std::string here;
    std::string there;
    bool first;  // of all calls, as far as both tell of them
  };
  // The first call at which a peer's calls and these part; nothing where they agree as far as both reach.
  std::optional<Difference> differenceTo(const std::vector<Told>& peers) const;

  // ---- on the loop

  // The call is under way. `timeout` begins; zero: it may last for ever.
  void begin(std::uint64_t number, Done done, std::chrono::milliseconds timeout);
  struct UnderWay {
    TimedCall call;
    bool isTouched;  // its tensors may hold garbage, if it fails
    bool isSettled;  // it is too late to count: this rank has told others that it is not complete here
  };
  std::optional<UnderWay> underWay(std::uint64_t number) const;
  // The call is over; its `done`, for the caller to call, is null if it was not under way. A call without an error is
  // complete here, and so is one that was refused: all ranks know.
  static bool isGood(const Error& error) { return !error || error.kind() == ErrorKind::Refused; }
  Done end(std::uint64_t number, const Error& error);
  std::optional<CallRecord> oldestUnderWay() const;
  bool isIdle() const { return underWay_ == 0; }
  void untouched(const std::set<std::uint64_t>& numbers);  // calls that have written nothing into their tensors
  // Calls 1 to this one are complete here, and none of those begun so far becomes so from now on.
  std::uint64_t settle();
  // At most so many of the last calls that have begun, in order.
  std::vector<CallRecord> records(std::size_t last) const;
  void close();  // drops what is under way: nothing expires any more, and no `done` will be told

 private:
  struct Row {
    CallRecord record;
    Done done;  // while the call is under way
    Loop::Clock::time_point due = Loop::Clock::time_point::max();
    std::chrono::milliseconds timeout{0};
    bool isTouched = true;
    bool isComplete = false;
    bool isOver = false;
  };
  using Rows = std::deque<Row>;

  const Row* find(std::uint64_t number) const;
  Row* find(std::uint64_t number);
  Rows::const_iterator firstTold() const;
  void lookAt(Loop::Clock::time_point when);
  void look();
  std::vector<TimedCall> takeExpired();
  void complete(Row& row);
  Done takeDone();  // of a call that is under way; none: no call is

  Loop& loop_;
  const Expired expired_;
  const std::size_t kept_;
  mutable std::mutex mutex_;  // guards rows_
  Rows rows_;                 // their numbers are consecutive
  Loop::TimerId timer_ = 0;
  Loop::Clock::time_point lookAt_ = Loop::Clock::time_point::max();  // when the timer is due: no call is before that
  std::size_t underWay_ = 0;                                         // calls
  std::uint64_t begun_ = 0;                                          // the last one
  std::uint64_t settled_ = 0;                                        // the last one that was begun then
  std::uint64_t completeUpTo_ = 0;
};

}  // namespace fairring
