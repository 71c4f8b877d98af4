#include "base/loop_thread.h"

#include <pthread.h>

#include <future>
#include <memory>

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
  const auto run = std::make_shared<std::packaged_task<void()>>(task);
  std::future<void> result = run->get_future();
  loop_.post([run] { (*run)(); });
  if (isStepped_) loop_.runOnce(std::chrono::milliseconds(0));
  result.get();
}

}  // namespace fairring
