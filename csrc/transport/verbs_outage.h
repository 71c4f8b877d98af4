// An outage of a verbs channel: from a break of its queue pairs until others carry messages. It says when to try again,
// and when it has lasted for too long. It counts ticks rather than time, so a process that stands still spends only one
// of them. On the loop only.
#pragma once

#include <chrono>
#include <functional>

#include "base/error.h"
#include "base/loop.h"

namespace fairring {

class VerbsOutage {
 public:
  struct Events {
    // Soon after its beginning and two seconds later, then after pauses of 4, 8, 16 seconds and so on: an attempt may
    // hold the loop up for a second, while the system looks for the peer's address.
    std::function<void()> tryAgain;
    std::function<void(const Error&)> lastedTooLong;
  };

  VerbsOutage(Loop& loop, std::chrono::milliseconds patience, Events events);
  VerbsOutage(const VerbsOutage&) = delete;
  VerbsOutage& operator=(const VerbsOutage&) = delete;
  ~VerbsOutage() { end(); }

  // One that is under way goes on: then this is why an attempt has failed.
  void begin(const Error& why);
  void end();
  bool isUnderWay() const { return static_cast<bool>(why_); }
  const Error& why() const { return why_; }

 private:
  void tick();

  Loop& loop_;
  const std::chrono::milliseconds patience_;
  const Events events_;
  Error why_;
  Error last_;  // of the attempts
  int ticks_ = 0;
  int nextAttempt_ = 0;  // by ticks
  Loop::TimerId next_ = 0;
};

}  // namespace fairring
