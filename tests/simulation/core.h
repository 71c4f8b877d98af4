// What a rank's thread has done of its time: work is carried out at once and charged here, so the rank is late by what
// it costs. One thread.
#pragma once

#include <algorithm>

#include "base/loop.h"
#include "simulation/costs.h"
#include "simulation/event_queue.h"

namespace fairring::simulation {

class Core {
 public:
  explicit Core(const CoreCosts& costs) : costs_(costs) {}

  const CoreCosts& costs() const { return costs_; }
  Time time() const { return time_; }  // that it is there, within a turn: when the turn began, and what it cost so far
  Loop::Clock::time_point clock() const { return Loop::Clock::time_point(time_); }
  void begin(Time now) { time_ = std::max(time_, now); }
  void charge(double seconds) { time_ += ofSeconds(seconds * slowness); }

  double slowness = 1.0;  // everything takes so many times longer

 private:
  const CoreCosts costs_;
  Time time_{0};
};

}  // namespace fairring::simulation
