// What is to happen in virtual time, and what time it is. Events of one time happen in the order in which they were
// put there, so a simulation takes the same course in every run. One thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace fairring::simulation {

using Time = std::chrono::nanoseconds;  // since the beginning
inline constexpr Time kNever = Time::max();

inline Time ofSeconds(double seconds) { return Time(std::llround(seconds * 1e9)); }
inline double secondsOf(Time time) { return static_cast<double>(time.count()) / 1e9; }

class EventQueue {
 public:
  using Event = std::function<void()>;

  Time now() const { return now_; }
  std::uint64_t happened() const { return happened_; }
  bool empty() const { return heap_.empty(); }

  void at(Time time, Event event) {
    heap_.push_back({std::max(time, now_), nextNumber_++, std::move(event)});
    std::ranges::push_heap(heap_, isLater);
  }
  // The next one happens. There is one.
  void runNext() {
    std::ranges::pop_heap(heap_, isLater);
    const Entry next = std::move(heap_.back());
    heap_.pop_back();
    now_ = next.time;
    ++happened_;
    next.event();
  }

 private:
  struct Entry {
    Time time;
    std::uint64_t number;
    Event event;
  };
  static bool isLater(const Entry& one, const Entry& other) {
    return std::pair(one.time, one.number) > std::pair(other.time, other.number);
  }

  Time now_{0};
  std::uint64_t nextNumber_ = 0;
  std::uint64_t happened_ = 0;
  std::vector<Entry> heap_;
};

}  // namespace fairring::simulation
