#include "transport/verbs_outage.h"

#include <cassert>
#include <string>
#include <utility>

namespace fairring {

namespace {

constexpr std::chrono::milliseconds kTick{500};
constexpr int kTicksOfFirstPause = 4;

}  // namespace

VerbsOutage::VerbsOutage(Loop& loop, std::chrono::milliseconds patience, Events events)
    : loop_(loop), patience_(patience), events_(std::move(events)) {}

// The first tick is one of a later turn: completions of the queue pairs that broke may still be at hand in this one.
void VerbsOutage::begin(const Error& why) {
  assert(loop_.isCurrent() && why);
  last_ = why;
  if (isUnderWay()) return;
  why_ = why;
  ticks_ = nextAttempt_ = 0;
  next_ = loop_.at(loop_.now(), [this] { tick(); });
}

void VerbsOutage::end() {
  why_ = {};
  loop_.cancel(std::exchange(next_, 0));
}

void VerbsOutage::tick() {
  if (ticks_ > 0 && ticks_ * kTick >= patience_) {
    const std::string last = last_.text() == why_.text() ? "" : concat("; the last attempt: ", last_.text());
    return events_.lastedTooLong(
        makeError(why_.kind(), why_.text(), "; for ", patience_.count(), " ms no connection could be made anew", last));
  }
  next_ = loop_.at(loop_.now() + kTick, [this] { tick(); });
  if (ticks_++ < nextAttempt_) return;
  nextAttempt_ = 2 * nextAttempt_ + kTicksOfFirstPause;
  events_.tryAgain();
}

}  // namespace fairring
