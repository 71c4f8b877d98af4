// The calls of a group that are under way and must not last for ever. One timer of the loop serves all of them: nearly
// every call ends long before its time, and most have as much of it as the one before. On the loop only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "base/loop.h"
#include "base/text.h"

namespace fairring {

struct TimedCall {
  std::uint64_t number = 0;  // in the group's call log; 0: not counted there
  Text text;
  std::chrono::milliseconds timeout{0};  // 0: none
};

class Deadlines {
 public:
  using Expired = std::function<void(const TimedCall&)>;

  Deadlines(Loop& loop, Expired expired) : loop_(loop), expired_(std::move(expired)) {}
  Deadlines(const Deadlines&) = delete;
  Deadlines& operator=(const Deadlines&) = delete;
  ~Deadlines() = default;  // after close(), where there were calls; then anywhere

  void begin(std::uint64_t id, TimedCall call);
  void close() { loop_.cancel(std::exchange(timer_, 0)); }  // nothing expires any more
  void end(std::uint64_t id) { calls_.erase(id); }          // nothing where it has expired, or never had a timeout

 private:
  struct Timed {
    Loop::Clock::time_point due;
    TimedCall call;
  };

  void lookAt(Loop::Clock::time_point when);
  void look();

  Loop& loop_;
  const Expired expired_;
  std::map<std::uint64_t, Timed> calls_;
  Loop::TimerId timer_ = 0;
  Loop::Clock::time_point lookAt_ = Loop::Clock::time_point::max();  // when the timer is due: no call is before that
};

}  // namespace fairring
