// Where completed calls are told to the user: future callbacks, copies into tensors that are not contiguous, the end of
// profiler events. One per process. Tasks may take Python's global lock and may block, which the loop never does.
//
// Tasks run one at a time and in order, on one thread, as long as they come to an end. A callback may wait for the
// future of a later call (PowerSGD's hook does), whose completion is a task too: so one more thread stands by, and
// takes the next task when those that run have not come back for kPatience.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace fairring {

class Completion {
 public:
  using Task = std::function<void()>;
  static constexpr std::chrono::milliseconds kPatience{1};

  Completion();
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;
  ~Completion();  // runs what was posted, then joins; never on one of its own threads, never with the global lock held

  void post(Task task);  // any thread; does not wait

 private:
  void serve();
  bool takeTurn(std::unique_lock<std::mutex>& lock);
  void startThread();

  std::mutex mutex_;  // guards all below; tasks run outside it
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::vector<std::thread> threads_;
  std::uint64_t taken_ = 0;  // tasks taken so far
  int busy_ = 0;             // threads inside a task
  bool stop_ = false;
};

}  // namespace fairring
