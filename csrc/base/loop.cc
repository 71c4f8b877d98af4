#include "base/loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <condition_variable>

#include "base/error.h"

namespace fairring {

namespace {

constexpr std::uint64_t kWakeToken = 0;

Descriptor opened(int fd, const char* call) {
  if (fd < 0) throw Failure(systemError(call));
  return Descriptor(fd);
}

}  // namespace

Loop::Loop()
    : epoll_(opened(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      wakeUp_(opened(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeToken;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wakeUp_.get(), &event) != 0) throw Failure(systemError("epoll_ctl"));
}

Loop::~Loop() = default;

void Loop::post(Task task) {
  bool asleep = false;
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(task));
    asleep = std::exchange(asleep_, false);
  }
  if (asleep) wake();
}

void Loop::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wakeUp_.get(), &one, sizeof one);  // full means it is awake already
}

void Loop::runOnce(std::chrono::milliseconds maxWait) {
  holder_.store(std::this_thread::get_id());
  bool served = runPosted();
  served = runDueTimers() || served;
  served = runOnePiece() || served;
  serveDescriptors(served ? std::chrono::milliseconds(0) : maxWait);
  holder_.store(std::thread::id{});
}

bool Loop::runPosted() {
  std::vector<Task> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(posted_);
  }
  for (const Task& task : tasks) invoke(task);
  return !tasks.empty();
}

bool Loop::runDueTimers() {
  if (timers_.empty()) return false;
  const auto now = Clock::now();
  bool served = false;
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    auto due = timers_.extract(timers_.begin());
    timerTimes_.erase(due.key().second);
    invoke(due.mapped());
    served = true;
  }
  return served;
}

bool Loop::runOnePiece() {
  if (jobs_.empty()) return false;
  const auto key = jobs_.begin()->first;
  const std::shared_ptr<Piece> piece = jobs_.begin()->second.piece;  // the piece may drop its own job
  bool more = false;
  invoke([&] { more = (*piece)(); });
  if (!more) jobs_.erase(key);
  return true;
}

int Loop::waitMs(std::chrono::milliseconds maxWait) {
  if (!jobs_.empty()) return 0;
  auto wait = std::max(maxWait, std::chrono::milliseconds(0));
  if (!timers_.empty()) {
    const auto untilTimer = std::chrono::ceil<std::chrono::milliseconds>(timers_.begin()->first.first - Clock::now());
    wait = std::clamp(untilTimer, std::chrono::milliseconds(0), wait);
  }
  const std::lock_guard lock(mutex_);
  if (!posted_.empty()) return 0;
  asleep_ = wait.count() > 0;
  return static_cast<int>(std::min<std::int64_t>(wait.count(), 60'000));
}

void Loop::serveDescriptors(std::chrono::milliseconds maxWait) {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), waitMs(maxWait));
  {
    const std::lock_guard lock(mutex_);
    asleep_ = false;
  }
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 == kWakeToken) {
      std::uint64_t drained = 0;
      [[maybe_unused]] const auto got = ::read(wakeUp_.get(), &drained, sizeof drained);
      continue;
    }
    // By token, not by descriptor: an earlier handler of this turn may have closed it, and its number may be new again.
    const auto token = tokens_.find(events[i].data.u64);
    if (token == tokens_.end()) continue;
    const auto ready = watched_.at(token->second).ready;
    invoke([&] { (*ready)(events[i].events); });
  }
}

void Loop::invoke(const Task& task) {
  Error error;
  try {
    return task();
  } catch (const Failure& failure) {
    error = failure.error();
  } catch (const std::exception& exception) {
    error = makeError(ErrorKind::System, "the loop was stopped by an exception: ", exception.what());
  }
  const auto handlers = uncaught_;  // a handler may forget itself
  for (const auto& [owner, handler] : handlers) handler(error);
}

void Loop::onUncaught(const void* owner, std::function<void(const Error&)> handler) {
  assert(isCurrent());
  uncaught_[owner] = std::move(handler);
}

void Loop::forgetUncaught(const void* owner) {
  assert(isCurrent());
  uncaught_.erase(owner);
}

void Loop::work(const void* owner, std::uint64_t urgency, Piece piece) {
  assert(isCurrent());
  jobs_.emplace(std::pair(urgency, nextId_++), Job{owner, std::make_shared<Piece>(std::move(piece))});
}

void Loop::dropWork(const void* owner) {
  assert(isCurrent());
  std::erase_if(jobs_, [owner](const auto& job) { return job.second.owner == owner; });
}

Loop::TimerId Loop::at(Clock::time_point when, Task task) {
  assert(isCurrent());
  const TimerId id = nextId_++;
  timers_.emplace(std::pair(when, id), std::move(task));
  timerTimes_.emplace(id, when);
  return id;
}

void Loop::cancel(TimerId timer) {
  assert(isCurrent());
  const auto time = timerTimes_.find(timer);
  if (time == timerTimes_.end()) return;
  timers_.erase({time->second, timer});
  timerTimes_.erase(time);
}

void Loop::watch(int fd, std::uint32_t epollEvents, Ready ready) {
  assert(isCurrent());
  const std::uint64_t token = nextId_++;
  epoll_event event{};
  event.events = epollEvents;
  event.data.u64 = token;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw Failure(systemError("epoll_ctl"));
  watched_[fd] = {token, std::make_shared<Ready>(std::move(ready))};
  tokens_[token] = fd;
}

void Loop::rewatch(int fd, std::uint32_t epollEvents) {
  assert(isCurrent());
  epoll_event event{};
  event.events = epollEvents;
  event.data.u64 = watched_.at(fd).token;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) throw Failure(systemError("epoll_ctl"));
}

void Loop::unwatch(int fd) {
  assert(isCurrent());
  const auto watched = watched_.find(fd);
  if (watched == watched_.end()) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  tokens_.erase(watched->second.token);
  watched_.erase(watched);
}

LoopThread::LoopThread()
    : thread_([this] {
        while (!stop_) loop_.runOnce(std::chrono::hours(1));
      }) {}

LoopThread::~LoopThread() {
  loop_.post([this] { stop_ = true; });
  thread_.join();
}

void LoopThread::runAndWait(const Loop::Task& task) {
  if (loop_.isCurrent()) return task();
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr thrown;
  loop_.post([&] {
    try {
      task();
    } catch (...) {
      thrown = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_one();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace fairring
