#include "base/loop.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"

namespace fairring {

namespace {

constexpr std::chrono::microseconds kShortJobs{50};  // per turn: about as long as one piece of a long job
// How often a waiting caller looks at memory alone before it serves all else, which takes a system call.
constexpr int kPolls = 16;

struct Idle {  // a caller with nothing to serve
  Loop::Clock::time_point since;
  Loop::Clock::time_point sleepAt;
  Loop::Clock::time_point lookedAt;  // the last time; what the next look finds has happened just now
};

// To the nanosecond, unlike epoll_wait(): timers may be some tens of microseconds away (device/told_words.h).
void sleepOn(int epoll, Loop::Clock::time_point now, Loop::Clock::time_point until) {
  const auto sleep = std::max(until - now, Loop::Clock::duration::zero());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(sleep);
  const timespec time{.tv_sec = seconds.count(), .tv_nsec = std::chrono::nanoseconds(sleep - seconds).count()};
  pollfd events{.fd = epoll, .events = POLLIN, .revents = 0};
  ::ppoll(&events, 1, &time, nullptr);
}

}  // namespace

Loop::~Loop() = default;

bool Loop::runOnce(std::chrono::milliseconds maxWait) {
  if (!ownership_.take()) return false;
  const bool served = serve();
  if (!served && maxWait.count() > 0) sleepUntil(now_() + maxWait);
  ownership_.give({});
  return served;
}

bool Loop::progressUntil(const std::function<bool()>& over, Clock::time_point deadline) {
  if (!ownership_.takeOver()) return false;
  setPolling(true);
  std::optional<Idle> idle;
  const auto busy = [&](bool slept) {
    if (idle) spin_.ended((slept ? now_() : idle->lookedAt) - idle->since, slept);
    idle.reset();
  };
  while (!over()) {
    if (pollOften(idle ? EventTime(idle->lookedAt) : std::nullopt) || serve()) {
      busy(false);
      continue;
    }
    if (idle) ::sched_yield();  // to another rank of this machine, if there are more ranks than cores
    const auto now = now_();
    if (now >= deadline) break;
    if (!idle) idle = {now, now + spin_.next(), now};
    idle->lookedAt = now;
    if (now < idle->sleepAt) continue;
    setPolling(false);
    if (!poll()) sleepUntil(deadline);
    setPolling(true);
    busy(true);
  }
  setPolling(false);
  poll();
  ownership_.give({.due = !work_.isEmpty(), .pending = pending_ > 0, .served = true, .next = firstTimer()});
  return true;
}

void Loop::runPostedAndGive(EventTime now) {
  assert(isCurrent());
  while (runPosted(std::exchange(now, std::nullopt))) endTurn();
  ownership_.give({.next = firstTimer()});
}

void Loop::progressAndGive() {
  assert(isCurrent());
  const auto end = now_() + kShortJobs;
  do {  // descriptors last: polling them is a system call, and a posted task rarely makes one ready at once
    while ((runPosted() || runDueTimers() || runPieces(WorkQueue::Among::All)) && now_() < end) {
    }
  } while (now_() < end && serveDescriptors());
  endTurn();
  ownership_.give({.due = !work_.isEmpty(), .pending = pending_ > 0, .served = true, .next = firstTimer()});
}

void Loop::progressInBackground() {
  if (!ownership_.takeInBackground()) return ownership_.park();
  if (serve()) return ownership_.give({});
  const auto next = firstTimer();
  if (!ownership_.stepAside(next)) return ownership_.give({});
  sleepOn(epoll_.get(), now_(), next);
  ownership_.comeBack();
}

bool Loop::serve() {
  turnsUnserved_ = 0;
  bool served = runPosted();
  served = runDueTimers() || served;
  // Shared jobs are left to helpers, unless there is nothing else to do.
  served = runPieces(hasHelpers() ? WorkQueue::Among::Unshared : WorkQueue::Among::All) || served;
  served = serveDescriptors() || served;
  if (!served && hasHelpers()) served = runPieces(WorkQueue::Among::All);
  endTurn();
  return served;
}

void Loop::sleepUntil(Clock::time_point until) {
  assert(epoll_);
  if (!ownership_.fallAsleep()) return;
  sleepOn(epoll_.get(), now_(), std::min(until, firstTimer()));
  ownership_.awake();
  serveDescriptors();
  endTurn();
}

Loop::Clock::time_point Loop::firstTimer() const {
  return timers_.empty() ? Clock::time_point::max() : timers_.begin()->first.first;
}

bool Loop::poll(EventTime at) {
  bool seen = false;
  polling_ = true;
  for (const auto& entry : pollers_) invoke([&] { seen = entry.second.poll() || seen; }, at);
  polling_ = false;
  if (seen) endTurn();
  return seen;
}

// Looks at memory alone, until it sees something. Looks at nothing where there is work to do, which goes first, or when
// so many turns in a row have served nothing else.
bool Loop::pollOften(EventTime at) {
  if (!work_.isEmpty() || pollers_.empty() || ++turnsUnserved_ >= kPolls) return false;
  for (int i = 0; i < kPolls; ++i) {
    if (poll(at)) return true;
  }
  return false;
}

void Loop::endTurn() {
  for (const auto& [owner, poller] : pollers_) invoke(poller.turnEnds);
}

void Loop::setPolling(bool polling) {
  for (const auto& [owner, poller] : pollers_) poller.setPolling(polling);
}

void Loop::addPoller(const void* owner, Poller poller) {
  assert(isCurrent());
  pollers_[owner] = std::move(poller);
}

void Loop::removePoller(const void* owner) {
  assert(isCurrent() && !polling_);
  pollers_.erase(owner);
}

void Loop::setSpinTime(std::chrono::microseconds time) {
  assert(isCurrent());
  spin_ = SpinPolicy(time);
}

bool Loop::runPosted(EventTime firstAt) {
  const std::vector<Task> tasks = ownership_.takePosted();
  for (const Task& task : tasks) invoke(task, std::exchange(firstAt, std::nullopt));
  return !tasks.empty();
}

bool Loop::runDueTimers() {
  if (timers_.empty()) return false;
  const auto now = now_();
  bool served = false;
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    auto due = timers_.extract(timers_.begin());
    timerTimes_.erase(due.key().second);
    invoke(due.mapped());
    served = true;
  }
  return served;
}

bool Loop::runPieces(WorkQueue::Among among) {
  if (work_.isEmpty()) return false;
  const WorkQueue::Invoke invoked = [this](const Task& task) { invoke(task); };
  const auto end = now_() + kShortJobs;
  WorkQueue::Ran ran = work_.runPiece(among, invoked);
  const bool any = ran != WorkQueue::Ran::Nothing;
  while (ran == WorkQueue::Ran::Whole && now_() < end) ran = work_.runPiece(among, invoked);
  return any;
}

Loop::Clock::time_point Loop::eventTime() {
  assert(isCurrent());
  return eventTime_ ? *eventTime_ : eventTimeAnew();
}

Loop::Clock::time_point Loop::eventTimeAnew() {
  assert(isCurrent());
  return *(eventTime_ = now_());
}

void Loop::invoke(const Task& task, EventTime at) {
  eventTime_ = at;
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
  work_.add(owner, urgency, std::move(piece));
}

void Loop::share(const void* owner, std::uint64_t urgency, Piece piece, Task done) {
  assert(isCurrent());
  work_.share(owner, urgency, std::move(piece), std::move(done));
}

void Loop::dropWork(const void* owner) {
  assert(isCurrent());
  work_.drop(owner);
}

Loop::TimerId Loop::at(Clock::time_point when, Task task) {
  assert(isCurrent());
  const TimerId id = nextId_++;
  timerTimes_.emplace(id, when);  // the first: a timer that nobody can cancel would outlive who made it
  timers_.emplace(std::pair(when, id), std::move(task));
  return id;
}

void Loop::cancel(TimerId timer) {
  assert(isCurrent());
  const auto time = timerTimes_.find(timer);
  if (time == timerTimes_.end()) return;
  timers_.erase({time->second, timer});
  timerTimes_.erase(time);
}

}  // namespace fairring
