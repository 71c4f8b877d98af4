// The arrival of what a call reads, where that is on its way to the memory which the call names. The call takes its
// place in the order of calls at once, and none of its slices is cut before the last piece is there. Any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace fairring {

class Arrival {
 public:
  using Told = std::function<void(const Error&)>;

  explicit Arrival(std::size_t pieces) : missing_(pieces) {}
  Arrival(const Arrival&) = delete;
  Arrival& operator=(const Arrival&) = delete;

  bool isThere() const {  // all of it; never, after an error
    const std::lock_guard lock(mutex_);
    return missing_ == 0 && !error_;
  }

  // A piece is there, or will never be.
  void come(const Error& error = {}) {
    Told told;
    {
      const std::lock_guard lock(mutex_);
      if (error && !error_) error_ = error;
      if (--missing_ == 0) told = std::exchange(told_, nullptr);
    }
    if (told) told(error_);
  }

  // `told` is called once, with the first error: now, or by whoever brings the last piece.
  void whenOver(Told told) {
    {
      const std::lock_guard lock(mutex_);
      if (missing_ > 0) return void(told_ = std::move(told));
    }
    told(error_);
  }

 private:
  mutable std::mutex mutex_;  // guards all below; error_ does not change any more once nothing is missing
  std::size_t missing_;
  Error error_;
  Told told_;
};

}  // namespace fairring
