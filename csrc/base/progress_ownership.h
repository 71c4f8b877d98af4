// Which thread runs a loop, and the tasks that others post to it. At most one thread owns its progress at a time:
//   a caller that waits for something takes it and serves the loop itself, so nothing hops between threads;
//   the progress thread, a thread of the loop's own (loop_thread.h), has it when no caller does.
// The progress thread sleeps without ownership, in poll() on the loop's descriptors, so a caller can take it at any
// time. An event then wakes the progress thread in vain, once: it parks, and looks again kPark later or when it is
// called.
//   a caller who waits has it from the progress thread as soon as that is through with its turn.
//   a caller who makes small calls in a row serves the loop with some of them, for those before; meanwhile the progress
//   thread keeps off, since each of its turns would take a core from a caller.
// One mutex for the tasks and the sleepers: whoever posts must know who will look. Any thread, where not said
// otherwise.
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
  static constexpr std::chrono::microseconds kRow{200};  // at most, between two services in a row

  struct Rest {                                         // what its holder leaves behind
    bool due = false;                                   // work that could go on at once
    bool pending = false;                               // something under way, which waits for events
    bool served = false;                                // by a caller, who may come again at once
    Clock::time_point next = Clock::time_point::max();  // the first timer
  };

  enum class Alarm : std::uint8_t { None, Rings };  // None: nobody ever sleeps

  explicit ProgressOwnership(Alarm alarm = Alarm::Rings);  // throws Failure(System)

  bool take();      // false where somebody holds it
  bool takeOver();  // from the progress thread too, whose turn it waits for; false where another caller holds it
  bool takeInBackground();  // by the progress thread; false where another has it, waits for it, or serves in a row
  bool isMine() const { return holder_.load() == std::this_thread::get_id(); }
  void give(const Rest& rest);  // holder

  void post(Task task);
  bool postAndTake(Task task);     // the two in one: nobody else takes it between them, and nobody is called
  bool postInRow(Task task);       // the same; but right after a service in a row it leaves the task for the next one
  std::vector<Task> takePosted();  // holder

  // Readable when a sleeper was called; belongs among the loop's descriptors.
  int alarm() const { return alarm_.get(); }
  void quietAlarm();

  // The holder sleeps between these two, and keeps ownership. False where something has been posted.
  bool fallAsleep();
  void awake();
  // The progress thread sleeps between these two, without ownership until `next`. False where something has been
  // posted; it still has ownership then.
  bool stepAside(Clock::time_point next);
  void comeBack();
  // The progress thread waits for the holder to give ownership up.
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
  bool inBackground_ = false;   // its holder is the progress thread
  bool asleep_ = false;         // its holder
  int wanting_ = 0;             // callers who wait for the progress thread's turn to end
  bool urgent_ = false;         // there is work that does not wait for one who serves in a row
  Clock::time_point servedAt_;  // when a caller last gave it up
  Clock::time_point inRowAt_;   // when one did so within kRow of the time before
  bool aside_ = false;          // the progress thread
  Clock::time_point asideUntil_;
  bool parked_ = false;
  bool parkedInRow_ = false;
};

}  // namespace fairring
