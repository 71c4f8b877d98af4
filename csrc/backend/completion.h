// The threads that tell the user of completed calls: future callbacks, copies into tensors that are not contiguous. One
// object per process. Tasks may take the GIL and may block, which the loop never does.
//
// Tasks begin in order. The next one begins when the last has ended, or has run for kPatience: a callback may wait for
// the future of a later call (PowerSGD's hook does), whose completion is a task too. So there is always one more thread
// than are busy, from the beginning on, and tasks that take longer than kPatience overlap; when none is busy any more,
// threads beyond the first two end. If the system has no more threads, the next task waits for a thread that becomes
// free.
#pragma once

#include <c10/util/intrusive_ptr.h>

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
  static constexpr std::chrono::milliseconds kGather{5};

  Completion();
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;
  ~Completion();  // runs the posted tasks, then joins; never on one of its own threads, never with the GIL

  void post(Task task);  // any thread; does not wait
  // Drops a reference, possibly the last one, on one of the threads within kGather, batched with the others that have
  // come by then: so many calls in a row wake a thread only once. Any thread; does not wait.
  using Object = c10::intrusive_ptr<c10::intrusive_ptr_target>;
  void release(Object object);
  // The same at once, on the caller's thread, which comes by often. Destroying a tensor takes the GIL; a thread that
  // loses its core just then would keep it from all others.
  void letGo();

 private:
  void serve();
  void awaitTask(std::unique_lock<std::mutex>& lock);
  bool takeTurn(std::unique_lock<std::mutex>& lock);
  void startThread();
  void startStandBy();
  void retire();

  std::mutex mutex_;  // guards all below; tasks run outside it
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::vector<Object> released_;
  bool gathers_ = false;  // a thread waits for more of these
  std::vector<std::thread> threads_;
  std::thread retired_;      // the last that did: it only has to return
  std::uint64_t taken_ = 0;  // tasks taken so far
  int busy_ = 0;             // threads inside a task
  bool stop_ = false;
};

// For threads without a caller, where an exception would end the process: it is logged, as the failure of `what`.
void orLogged(const char* what, const std::function<void()>& attempt);

}  // namespace fairring
