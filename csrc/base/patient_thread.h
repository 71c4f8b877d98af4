// A thread whose work may never end, because nothing can break off what it waits for: a store that has gone, a device
// that is stuck. Its owner waits for it for a while. Then the thread is joined if its work is over, and left behind if
// not; so the work may touch only what it owns.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <thread>

namespace fairring {

class PatientThread {
 public:
  using Clock = std::chrono::steady_clock;

  // The work must not throw. Throws std::system_error if the system has no threads left.
  explicit PatientThread(std::function<void()> work);
  PatientThread(const PatientThread&) = delete;
  PatientThread& operator=(const PatientThread&) = delete;
  ~PatientThread() { endBy(Clock::now()); }

  bool endBy(Clock::time_point until);  // false: left behind

 private:
  std::future<void> over_;
  std::thread thread_;
};

}  // namespace fairring
