// An estimate of a lane's rate, from the acknowledgements that arrive while the lane is busy. Recent ones count most.
// Bytes in, times in, a rate out: no clock of its own.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace fairring {

class RateEstimator {
 public:
  using Clock = std::chrono::steady_clock;

  // Bytes were given to the lane while `outstanding` were on it.
  void gave(std::uint64_t outstanding, Clock::time_point now) {
    if (outstanding == 0) since_ = now;
  }
  // That many of the outstanding bytes have been acknowledged.
  void acked(std::uint64_t bytes, Clock::time_point now) {
    seconds_ += std::chrono::duration<double>(now - since_).count();
    bytes_ += static_cast<double>(bytes);
    since_ = now;
    if (seconds_ < kMemorySeconds) return;
    seconds_ /= 2;
    bytes_ /= 2;
  }
  double bytesPerSecond() const { return bytes_ > 0 ? bytes_ / std::max(seconds_, 1e-6) : kUnknown; }

 private:
  static constexpr double kUnknown = 125e6;  // for a lane that has carried nothing yet: arbitrary, but the same for all
  static constexpr double kMemorySeconds = 0.1;

  double bytes_ = 0;
  double seconds_ = 0;
  Clock::time_point since_;
};

}  // namespace fairring
