#include "base/loop_thread.h"

#include <pthread.h>

#include <condition_variable>
#include <mutex>

namespace fairring {

namespace {

constexpr const char* kName = "fairring loop";  // as debuggers and `top -H` show it

}  // namespace

LoopThread::LoopThread()
    : thread_([this] {
        pthread_setname_np(pthread_self(), kName);
        while (!stop_) loop_.progressInBackground();
      }) {}

LoopThread::~LoopThread() {
  if (isStepped_) return;
  loop_.post([this] { stop_ = true; });
  thread_.join();
}

void LoopThread::runAndWait(const Loop::Task& task) {
  if (loop_.isCurrent()) return task();
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr thrown;
  const auto run = [&] {
    try {
      task();
    } catch (...) {
      thrown = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_one();
  };
  loop_.post(run);
  if (isStepped_) loop_.runOnce(std::chrono::milliseconds(0));
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace fairring
