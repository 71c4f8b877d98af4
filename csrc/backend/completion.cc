#include "backend/completion.h"

#include <c10/util/Logging.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace fairring {

namespace {

constexpr std::size_t kThreads = 2;  // one that serves, and one that stands by

}  // namespace

Completion::Completion() {
  const std::lock_guard lock(mutex_);
  startThread();
  startStandBy();
}

Completion::~Completion() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    threads.swap(threads_);
    if (retired_.joinable()) threads.push_back(std::move(retired_));
  }
  changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

void Completion::post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void Completion::release(Object object) {
  {
    const std::lock_guard lock(mutex_);
    released_.push_back(std::move(object));
    if (released_.size() > 1 || gathers_) return;  // the thread that takes the first, or gathers, takes this one too
  }
  changed_.notify_one();
}

void Completion::letGo() {
  std::vector<Object> objects;  // they are destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  objects.swap(released_);
}

void Completion::startThread() {
  threads_.emplace_back([this] { serve(); });
}

void Completion::startStandBy() {
  try {
    startThread();
    // NOLINTNEXTLINE(bugprone-empty-catch): no thread or no memory; the next task to begin tries again
  } catch (const std::exception&) {
  }
}

// Waits for a task, or for a reference to drop, which is a task once it has been gathered.
void Completion::awaitTask(std::unique_lock<std::mutex>& lock) {
  const auto due = [this] { return !tasks_.empty() || stop_; };
  changed_.wait(lock, [&] { return due() || (!released_.empty() && !gathers_); });
  if (!due()) {
    gathers_ = true;
    changed_.wait_for(lock, kGather, due);
    gathers_ = false;
    if (!tasks_.empty() && !released_.empty()) changed_.notify_one();  // a task may block: another gathers these
  }
  if (tasks_.empty() && !released_.empty()) tasks_.emplace_back([this] { letGo(); });
}

// Waits until the first task is this thread's to run; false if there will be none.
bool Completion::takeTurn(std::unique_lock<std::mutex>& lock) {
  for (;;) {
    awaitTask(lock);
    if (tasks_.empty() && stop_) return false;
    if (tasks_.empty()) continue;  // another thread has dropped it
    if (busy_ == 0) return true;
    const auto before = taken_;
    const auto movedOn = [&] { return busy_ == 0 || taken_ != before || tasks_.empty(); };
    if (!changed_.wait_for(lock, kPatience, movedOn)) return true;  // the running tasks are stuck
  }
}

void Completion::serve() {
  std::unique_lock lock(mutex_);
  while (takeTurn(lock)) {
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    ++taken_;
    ++busy_;
    const bool noneStandsBy = busy_ == static_cast<int>(threads_.size());
    if (noneStandsBy && !stop_) startStandBy();
    lock.unlock();
    task();
    task = nullptr;  // may be the last owner of tensors or of Python objects: outside the mutex too
    lock.lock();
    --busy_;
    changed_.notify_all();
    if (busy_ == 0 && threads_.size() > kThreads && !stop_) return retire();
  }
}

// This thread, with the lock held, which it releases when it returns.
void Completion::retire() {
  const auto self = std::ranges::find(threads_, std::this_thread::get_id(), &std::thread::get_id);
  if (retired_.joinable()) retired_.join();
  retired_ = std::move(*self);
  threads_.erase(self);
}

void orLogged(const char* what, const std::function<void()>& attempt) {
  try {
    attempt();
  } catch (const std::exception& error) {
    LOG(ERROR) << "fairring: " << what << " failed: " << error.what();
  }
}

}  // namespace fairring
