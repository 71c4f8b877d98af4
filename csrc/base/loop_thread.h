// The thread that serves a loop when no caller does, from construction to destruction.
#pragma once

#include <thread>

#include "base/loop.h"

namespace fairring {

class LoopThread {
 public:
  LoopThread();
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;
  ~LoopThread();

  Loop& loop() { return loop_; }
  // Runs the task on the loop and returns when it has run; in place when called on the loop itself. What the task
  // throws is thrown here.
  void runAndWait(const Loop::Task& task);

 private:
  Loop loop_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace fairring
