// The loop: one queue of posted tasks, timers, file descriptors and long jobs, served turn by turn.
// It is a role, not a thread: whoever is inside runOnce() holds the role and alone may touch what the loop owns
// (slices, pipes, control connections); such code asserts isCurrent(). In a process a LoopThread holds the role;
// a test steps it by hand. Tasks, handlers and pieces of jobs never block.
// post() and isCurrent() may be called from any thread, everything else only by the holder of the role.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/descriptor.h"
#include "base/error.h"

namespace fairring {

class Loop {
 public:
  using Clock = std::chrono::steady_clock;
  using Task = std::function<void()>;
  using Piece = std::function<bool()>;  // does a part of a long job; false when there is no more to do
  using Ready = std::function<void(std::uint32_t epollEvents)>;
  using TimerId = std::uint64_t;

  Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop();

  void post(Task task);
  bool isCurrent() const { return holder_.load() == std::this_thread::get_id(); }

  // Who is told when a task, timer, piece or handler throws: the last border, since nothing may end the process.
  void onUncaught(const void* owner, std::function<void(const Error&)> handler);
  void forgetUncaught(const void* owner);

  // Serves what is due; where nothing is, waits for it for at most maxWait.
  void runOnce(std::chrono::milliseconds maxWait);

  // Long work (copies, sums) in pieces, one piece a turn, so that messages are served in between. The job with the
  // smallest urgency goes first: the oldest slice, for what lies behind it waits for it anyway.
  void work(const void* owner, std::uint64_t urgency, Piece piece);
  void dropWork(const void* owner);  // no piece of this owner's jobs runs any more

  TimerId at(Clock::time_point when, Task task);
  void cancel(TimerId timer);

  // Level-triggered. The handler may unwatch this or any other descriptor. The descriptor stays the caller's.
  void watch(int fd, std::uint32_t epollEvents, Ready ready);
  void rewatch(int fd, std::uint32_t epollEvents);
  void unwatch(int fd);

 private:
  struct Job {
    const void* owner;
    std::shared_ptr<Piece> piece;
  };
  struct Watched {
    std::uint64_t token;
    std::shared_ptr<Ready> ready;
  };

  // True when there was something to do.
  bool runPosted();
  bool runDueTimers();
  bool runOnePiece();
  void invoke(const Task& task);
  void serveDescriptors(std::chrono::milliseconds maxWait);
  int waitMs(std::chrono::milliseconds maxWait);
  void wake();

  std::atomic<std::thread::id> holder_;
  Descriptor epoll_;
  Descriptor wakeUp_;

  std::mutex mutex_;  // guards posted_ and asleep_
  std::vector<Task> posted_;
  bool asleep_ = false;

  std::uint64_t nextId_ = 1;
  std::map<std::pair<Clock::time_point, TimerId>, Task> timers_;
  std::unordered_map<TimerId, Clock::time_point> timerTimes_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Job> jobs_;  // by urgency, then age
  std::unordered_map<int, Watched> watched_;
  std::unordered_map<std::uint64_t, int> tokens_;
  std::map<const void*, std::function<void(const Error&)>> uncaught_;
};

// Holds the role of one loop from construction to destruction.
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
