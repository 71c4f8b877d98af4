#include "group/deadlines.h"

#include <algorithm>

namespace fairring {

void Deadlines::begin(std::uint64_t id, TimedCall call) {
  if (call.timeout.count() <= 0) return;
  const auto due = loop_.now() + call.timeout;
  calls_.insert_or_assign(calls_.end(), id, Timed{due, std::move(call)});
  if (due < lookAt_) lookAt(due);
}

void Deadlines::lookAt(Loop::Clock::time_point when) {
  loop_.cancel(timer_);
  lookAt_ = when;
  timer_ = loop_.at(when, [this] { look(); });
}

// What has expired is told one by one: the first may end all others.
void Deadlines::look() {
  timer_ = 0;
  lookAt_ = Loop::Clock::time_point::max();
  const auto now = loop_.now();
  const auto isDue = [now](const auto& entry) { return entry.second.due <= now; };
  for (auto due = std::ranges::find_if(calls_, isDue); due != calls_.end(); due = std::ranges::find_if(calls_, isDue)) {
    const TimedCall call = std::move(due->second.call);
    calls_.erase(due);
    expired_(call);
  }
  const auto next = std::ranges::min_element(calls_, {}, [](const auto& entry) { return entry.second.due; });
  if (next != calls_.end() && next->second.due < lookAt_) lookAt(next->second.due);
}

}  // namespace fairring
