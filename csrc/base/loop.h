// The loop: one queue of posted tasks, timers, file descriptors and long jobs (work_queue.h), served turn by turn.
// It is not a thread: its progress has one owner at a time (progress_ownership.h), and only the owner may touch the
// loop's objects (slices, channels, control connections); such code asserts isCurrent(). The owner is a LoopThread or a
// waiting caller; a test steps the loop by hand. Tasks, handlers and pieces of jobs never block. post(), postAndTake(),
// isCurrent(), runOnce() and progressUntil() are for any thread, everything else for the owner.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/progress_ownership.h"
#include "base/spin_policy.h"
#include "base/work_queue.h"

namespace fairring {

class Loop {
 public:
  using Clock = ProgressOwnership::Clock;
  using Task = ProgressOwnership::Task;
  using Piece = WorkQueue::Piece;
  using Ready = std::function<void(std::uint32_t epollEvents)>;
  using TimerId = std::uint64_t;
  using Now = std::function<Clock::time_point()>;

  Loop();
  // Makes one for a simulation, which has its own time and steps the loop by runOnce(0): no thread sleeps at it, so it
  // has no alarm, and no descriptor before it watches one.
  explicit Loop(Now now);
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop();

  void post(Task task) { ownership_.post(std::move(task)); }
  bool isCurrent() const { return ownership_.isMine(); }
  Clock::time_point now() const { return now_(); }
  // The same time for everything that the current task, handler or piece does, until one part of it asks anew. For
  // stamps of events that take less time than a clock reading.
  Clock::time_point eventTime();
  Clock::time_point eventTimeAnew();

  // Called when a task, timer, piece or handler throws. It is the last resort: nothing ends the process.
  void onUncaught(const void* owner, std::function<void(const Error&)> handler);
  void forgetUncaught(const void* owner);

  // Takes ownership for one turn: serves what is due, or waits at most maxWait for something. Returns true if something
  // was due at once.
  bool runOnce(std::chrono::milliseconds maxWait);
  // Takes ownership, even from the progress thread, and serves until `over` or the deadline: without sleeping at first,
  // for as long as the spin policy says (spin_policy.h). False if another caller owns progress.
  bool progressUntil(const std::function<bool()>& over, Clock::time_point deadline);
  // Posts the task; if progress has no owner, takes it too and returns true: the caller goes on to one of the next two.
  bool postAndTake(Task task) { return ownership_.postAndTake(std::move(task)); }
  // Like postAndTake(), for one of many short calls in a row: mostly returns false and leaves the task to the next
  // call.
  bool postInRow(Task task) { return ownership_.postInRow(std::move(task)); }
  // To be called with ownership taken so: runs what was posted, and what that posts itself, and gives ownership up.
  // Whoever calls this goes on to progressUntil() at once, for all else: what ends there finds somebody who waits for
  // it. now: a time read just before, if there is one, which the first task takes for its own.
  void runPostedAndGive(std::optional<Clock::time_point> now = std::nullopt);
  // To be called with ownership taken so: serves what is due for some tens of microseconds at most, waits for nothing,
  // and gives ownership up. For tasks so short that waking the progress thread would take longer.
  void progressAndGive();
  // Called by the thread that serves when no other does (loop_thread.h): one turn, or one sleep.
  void progressInBackground();

  // Long work in pieces, one per turn, so that messages are served in between; several short jobs, which end with their
  // first piece, share a turn.
  static constexpr std::uint64_t kPatient = WorkQueue::kPatient;
  void work(const void* owner, std::uint64_t urgency, Piece piece);
  // The same for pieces that helpers may run. `done` follows on the loop.
  void share(const void* owner, std::uint64_t urgency, Piece piece, Task done);
  void dropWork(const void* owner);  // no piece of this owner's jobs runs any more, and no `done`
  void setHelpers(std::size_t count) { work_.setHelpers(count); }
  bool hasHelpers() const { return work_.hasHelpers(); }

  // A source of events in memory rather than on a descriptor: a spinning thread polls it instead of being woken.
  struct Poller {
    std::function<bool()> poll;            // true if there was something; it is served within
    std::function<void(bool)> setPolling;  // whether a thread polls; poll() follows once after false
    std::function<void()> turnEnds;        // before the owner sleeps, gives ownership up, or begins the next turn
  };
  void addPoller(const void* owner, Poller poller);
  void removePoller(const void* owner);              // not from within poll()
  void setSpinTime(std::chrono::microseconds time);  // how long a waiting caller spins before it sleeps
  // Something is under way here: when a caller gives ownership up, the progress thread must take it at once.
  void addPending(int more) { pending_ += more; }

  TimerId at(Clock::time_point when, Task task);
  void cancel(TimerId timer);
  Clock::time_point firstTimer() const;  // the greatest value: none

  // Level-triggered. The handler may unwatch this or any other descriptor. The descriptor stays the caller's.
  void watch(int fd, std::uint32_t epollEvents, Ready ready);
  void rewatch(int fd, std::uint32_t epollEvents);
  void unwatch(int fd);

 private:
  struct Watched {
    std::uint64_t token;
    std::shared_ptr<Ready> ready;
  };

  using EventTime = std::optional<Clock::time_point>;  // empty: nobody has asked for it

  // True if there was something to do.
  bool serve();
  bool runPosted(EventTime firstAt = std::nullopt);
  bool runDueTimers();
  bool runPieces(WorkQueue::Among among);
  void runOver() {
    work_.runOver([this](const Task& task) { invoke(task); });
  }
  void openDescriptors();
  bool serveDescriptors();  // those that are ready
  bool poll(EventTime at = std::nullopt);
  bool pollOften(EventTime at);
  void setPolling(bool polling);
  void endTurn();
  void invoke(const Task& task, EventTime at = std::nullopt);
  void sleepUntil(Clock::time_point until);

  const Now now_;
  ProgressOwnership ownership_;
  Descriptor epoll_;  // none while a stepped loop watches nothing
  std::uint64_t nextId_ = 1;
  std::map<std::pair<Clock::time_point, TimerId>, Task> timers_;
  std::unordered_map<TimerId, Clock::time_point> timerTimes_;
  std::unordered_map<int, Watched> watched_;
  std::unordered_map<std::uint64_t, int> tokens_;
  std::map<const void*, std::function<void(const Error&)>> uncaught_;
  std::map<const void*, Poller> pollers_;
  SpinPolicy spin_{Clock::duration::zero()};
  EventTime eventTime_;  // of the running task, handler or piece
  int pending_ = 0;
  bool polling_ = false;
  int turnsUnserved_ = 0;  // since serve() was called last
  WorkQueue work_;         // last: its helpers post
};

}  // namespace fairring
