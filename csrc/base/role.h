// Who serves a loop, and the tasks that others post to it. At most one thread holds the role at a time:
//   a caller that waits for something takes it and serves the loop itself, so nothing hops between threads;
//   the stand-in, a thread of the loop's own (loop_thread.h), holds it when no caller does.
// The stand-in sleeps without the role, in poll() on the loop's descriptors, so a caller can take it at any time. An
// event then wakes the stand-in in vain, once: it parks, and looks again kPark later or when it is called.
//   a caller who waits has it from the stand-in as soon as that is through with its turn.
//   a caller who makes small calls in a row serves the loop with some of them, for those before; meanwhile the stand-in
//   keeps off, since each of its turns would take a core from a caller.
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
  static constexpr std::chrono::microseconds kParkInRow{500};
  static constexpr std::chrono::microseconds kRow{200};  // at most, between two services in a row

  struct Rest {                                         // what its holder leaves behind
    bool due = false;                                   // work that could go on at once
    bool awaited = false;                               // something under way, which waits for events
    bool served = false;                                // by a caller, who may come again at once
    Clock::time_point next = Clock::time_point::max();  // the first timer
  };

  Role();  // throws Failure(System)

  bool take();      // false where somebody holds it
  bool takeOver();  // from the stand-in too, whose turn it waits for; false where another caller holds it
  bool standIn();   // the stand-in takes it; false where somebody holds it, waits for it, or serves in a row
  bool isMine() const { return holder_.load() == std::this_thread::get_id(); }
  void give(const Rest& rest);  // holder

  void post(Task task);
  bool postAndTake(Task task);     // the two in one: nobody else takes it between them, and nobody is called
  bool postInRow(Task task);       // the same; but right after a service in a row it leaves the task for the next one
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
  // With the mutex:
  void call(Task task);
  bool takeWithTask(Task task);
  bool isInRow(Clock::duration within = kRow) const { return Clock::now() - inRowAt_ < within; }

  void ring();

  std::atomic<std::thread::id> holder_;
  Descriptor alarm_;

  std::mutex mutex_;  // guards all below
  std::condition_variable called_;
  std::condition_variable given_;
  std::vector<Task> posted_;
  bool held_ = false;
  bool standsIn_ = false;       // its holder is the stand-in
  bool asleep_ = false;         // its holder
  int wanting_ = 0;             // callers who wait for the stand-in's turn to end
  bool urgent_ = false;         // there is work that does not wait for one who serves in a row
  Clock::time_point servedAt_;  // when a caller last gave it up
  Clock::time_point inRowAt_;   // when one did so within kRow of the time before
  bool aside_ = false;          // the stand-in
  Clock::time_point asideUntil_;
  bool parked_ = false;
  bool parkedInRow_ = false;
};

}  // namespace fairring
