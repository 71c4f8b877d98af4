// Bytes by the time during which some of them were under way: time in which nothing was does not count, and time in
// which several things were counts once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace fairring {

class Throughput {
 public:
  // Times are nanoseconds of one clock, which never goes back.
  void begin(std::int64_t now) {
    if (underWay_++ == 0) since_ = now;
  }
  void end(std::uint64_t bytes, std::int64_t now) {
    --underWay_;
    nanoseconds_ += now - std::exchange(since_, now);
    bytes_ += bytes;
  }

  std::uint64_t bytes() const { return bytes_; }
  // Bytes/s since it was last asked; 0: nothing has ended since, or no time has passed.
  std::uint64_t take() {
    const auto bytes = static_cast<double>(std::exchange(bytes_, 0));
    const auto nanoseconds = static_cast<double>(std::exchange(nanoseconds_, 0));
    return nanoseconds > 0 ? static_cast<std::uint64_t>(bytes * 1e9 / nanoseconds) : 0;
  }

 private:
  std::size_t underWay_ = 0;
  std::int64_t since_ = 0;  // where some are
  std::uint64_t bytes_ = 0;
  std::int64_t nanoseconds_ = 0;
};

}  // namespace fairring
