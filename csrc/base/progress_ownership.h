// Progress ownership: which thread runs a loop, and the tasks that others post to it. At most one thread is the owner.
//   A waiting caller takes ownership and serves the loop itself, so nothing hops between threads.
//   The progress thread, the loop's own thread (loop_thread.h), has it when no caller does.
// The progress thread sleeps without ownership, in poll() on the loop's descriptors, so a caller can take it at any
// time. An event then wakes the progress thread in vain, once: it parks, and checks again kPark later or when it is
// called.
//   A waiting caller gets ownership from the progress thread as soon as the thread's turn is over.
//   A caller that makes small calls in a row serves the loop with some of them, on behalf of those before. The progress
//   thread keeps off meanwhile, since each of its turns would take a core from a caller.
// One mutex guards the tasks and the sleepers: a posting thread must know which thread will look. Any thread, unless
// stated otherwise.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/descriptor.h"

namespace fairring {

class ProgressOwnership {
 public:
  using Clock = std::chrono::steady_clock;
  using Task = std::function<void()>;
  static constexpr std::chrono::milliseconds kPark{5};
  static constexpr std::chrono::microseconds kParkInRow{500};
  static constexpr std::chrono::microseconds kRow{200};  // the longest time between two services in a row

  struct Rest {                                         // what the owner leaves behind
    bool due = false;                                   // work that could go on at once
    bool pending = false;                               // something under way that waits for events
    bool served = false;                                // by a caller, which may come again at once
    Clock::time_point next = Clock::time_point::max();  // the first timer
  };

  enum class Alarm : std::uint8_t { None, Rings };  // None: no thread ever sleeps

  explicit ProgressOwnership(Alarm alarm = Alarm::Rings);  // throws Failure(System)

  bool take();      // false if another thread has it
  bool takeOver();  // even from the progress thread, by waiting for its turn to end; false if another caller has it
  bool takeInBackground();  // by the progress thread; false if a caller has it, waits for it, or serves in a row
  bool isMine() const { return holder_.load() == std::this_thread::get_id(); }
  void give(const Rest& rest);  // holder

  void post(Task task);
  bool postAndTake(Task task);     // both in one step: no thread takes it in between, and none is called
  bool postInRow(Task task);       // the same; but right after a service in a row it leaves the task for the next one
  std::vector<Task> takePosted();  // holder

  // Readable when a sleeper was called; belongs among the loop's descriptors.
  int alarm() const { return alarm_.get(); }
  void quietAlarm();

  // The owner sleeps between these two, and keeps ownership. False if something has been posted.
  bool fallAsleep();
  void awake();
  // The progress thread sleeps between these two, without ownership, until `next`. False if something has been posted;
  // it then still has ownership.
  bool stepAside(Clock::time_point next);
  void comeBack();
  // The progress thread waits for the owner to give ownership up.
  void park();

 private:
  // To be called with the mutex held:
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
  bool inBackground_ = false;   // the owner is the progress thread
  bool asleep_ = false;         // the owner
  int wanting_ = 0;             // callers that wait for the progress thread's turn to end
  bool urgent_ = false;         // there is work that does not wait for a caller that serves in a row
  Clock::time_point servedAt_;  // when a caller last gave ownership up
  Clock::time_point inRowAt_;   // when one did so within kRow of the time before
  bool aside_ = false;          // the progress thread
  Clock::time_point asideUntil_;
  bool parked_ = false;
  bool parkedInRow_ = false;
};

}  // namespace fairring
