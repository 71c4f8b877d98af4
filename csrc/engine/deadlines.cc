#include "engine/deadlines.h"

namespace fairring {

Deadlines::~Deadlines() {
  for (const auto& [id, timer] : timers_) loop_.cancel(timer);
}

void Deadlines::begin(std::uint64_t id, TimedCall call) {
  if (call.timeout.count() <= 0) return;
  const auto when = Loop::Clock::now() + call.timeout;
  timers_[id] = loop_.at(when, [this, id, call = std::move(call)] {
    timers_.erase(id);
    expired_(call);
  });
}

void Deadlines::end(std::uint64_t id) {
  const auto timer = timers_.extract(id);
  if (!timer.empty()) loop_.cancel(timer.mapped());
}

}  // namespace fairring
