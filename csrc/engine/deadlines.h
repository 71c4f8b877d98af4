// The calls of a group that are under way and must not last for ever. On the loop only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/loop.h"

namespace fairring {

struct TimedCall {
  std::uint64_t number = 0;  // in the group's journal; 0: not counted there
  std::string text;
  std::chrono::milliseconds timeout{0};  // 0: none
};

class Deadlines {
 public:
  using Expired = std::function<void(const TimedCall&)>;

  Deadlines(Loop& loop, Expired expired) : loop_(loop), expired_(std::move(expired)) {}
  Deadlines(const Deadlines&) = delete;
  Deadlines& operator=(const Deadlines&) = delete;
  ~Deadlines();

  void begin(std::uint64_t id, TimedCall call);
  void end(std::uint64_t id);  // nothing where it has expired, or never had a timeout

 private:
  Loop& loop_;
  const Expired expired_;
  std::map<std::uint64_t, Loop::TimerId> timers_;
};

}  // namespace fairring
