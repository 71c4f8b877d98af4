// A loop, and the thread that serves it when no caller does, from construction to destruction.
#pragma once

#include <atomic>
#include <thread>
#include <utility>

#include "base/loop.h"

namespace fairring {

class LoopThread {
 public:
  LoopThread();
  // Made for a simulation, which has its own time and steps the loop by hand: there is no thread, and runAndWait()
  // takes a turn of the loop.
  explicit LoopThread(Loop::Now now) : loop_(std::move(now)), isStepped_(true) {}
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;
  ~LoopThread();

  Loop& loop() { return loop_; }
  // Runs the task on the loop and returns when it has run; in place if called on the loop itself. An exception of the
  // task is thrown here.
  void runAndWait(const Loop::Task& task);

 private:
  Loop loop_;
  const bool isStepped_ = false;
  std::atomic<bool> stop_{false};
  std::thread thread_;  // none if the loop is stepped
};

}  // namespace fairring
