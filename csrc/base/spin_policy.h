// How long a waiting caller spins before it sleeps. Spinning notices a peer's answer sooner than a wake-up does,
// but only if the peer has a core to answer on. With more ranks than cores, or with other busy programs, a
// spinning thread keeps the core from the rank that it waits for. So after spinning in vain several times in a row
// it is left off, and tried again now and then. Durations in, durations out: no clock of its own. One thread at a
// time.
#pragma once

#include <chrono>

namespace fairring {

class SpinPolicy {
 public:
  using Duration = std::chrono::steady_clock::duration;
  static constexpr int kMisses = 3;     // in a row, after which spinning is left off
  static constexpr int kTryEvery = 64;  // waits between tries, while it is left off

  explicit SpinPolicy(Duration most) : most_(most) {}

  // A wait begins: how long to spin.
  Duration next() {
    if (misses_ < kMisses || ++waits_ % kTryEvery == 0) return spun_ = most_;
    return spun_ = Duration::zero();
  }

  // The wait has ended after that time, by sleeping or not.
  void ended(Duration elapsed, bool slept) {
    if (spun_ == Duration::zero()) return;
    if (!slept && elapsed <= 2 * most_) {
      misses_ = 0;
    } else if (!slept || elapsed <= kSoon * most_) {  // found late: the core ran other threads meanwhile
      misses_ = misses_ < kMisses ? misses_ + 1 : kMisses;
    }
  }

 private:
  // A wait that takes longer, in units of `most`, would end in sleep anyway, so it says nothing about spinning.
  static constexpr int kSoon = 10;

  Duration most_;
  Duration spun_{0};
  int misses_ = 0;
  int waits_ = 0;
};

}  // namespace fairring
