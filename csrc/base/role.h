// Who serves a loop, and the tasks that others post to it. At most one thread holds the role at a time:
//   a caller that waits for something takes it and serves the loop itself, so nothing hops between threads;
//   the stand-in, a thread of the loop's own (loop_thread.h), holds it when no caller does.
// The stand-in sleeps without the role, in poll() on the loop's descriptors, so a caller can take it at any time. An
// event then wakes the stand-in in vain, once: it parks, and looks again kPark later or when it is called.
// One mutex for the tasks and the sleepers: whoever posts must know who will look. Any thread, where not said
// otherwise.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/descriptor.h"

namespace fairring {

class Role {
 public:
  using Clock = std::chrono::steady_clock;
  using Task = std::function<void()>;
  static constexpr std::chrono::milliseconds kPark{5};

  struct Rest {                                         // what its holder leaves behind
    bool due = false;                                   // work that could go on at once
    bool awaited = false;                               // something under way, which waits for events
    Clock::time_point next = Clock::time_point::max();  // the first timer
  };

  Role();  // throws Failure(System)

  bool take();  // false where somebody holds it
  bool isMine() const { return holder_.load() == std::this_thread::get_id(); }
  void give(const Rest& rest);  // holder

  void post(Task task);
  std::vector<Task> takePosted();  // holder

  // Readable when a sleeper was called; belongs among the loop's descriptors.
  int alarm() const { return alarm_.get(); }
  void quietAlarm();

  // The holder sleeps between these two, and keeps the role. False where something has been posted.
  bool fallAsleep();
  void awake();
  // The stand-in sleeps between these two, without the role until `next`. False where something has been posted; it
  // still has the role then.
  bool stepAside(Clock::time_point next);
  void comeBack();
  // The stand-in waits for the holder to give the role up.
  void park();

 private:
  void ring();

  std::atomic<std::thread::id> holder_;
  Descriptor alarm_;

  std::mutex mutex_;  // guards all below
  std::condition_variable called_;
  std::vector<Task> posted_;
  bool held_ = false;
  bool asleep_ = false;  // the holder
  bool aside_ = false;   // the stand-in
  Clock::time_point asideUntil_;
  bool parked_ = false;
};

}  // namespace fairring
