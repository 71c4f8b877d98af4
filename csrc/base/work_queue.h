// The long jobs of a loop, in pieces of some tens of microseconds: copies, sums, sends. The loop's owner runs one piece
// per turn, and all messages are served in between. Helpers are threads that run pieces of shared jobs meanwhile, where
// a process has cores enough; these pieces touch nothing but memory and descriptors that are theirs until the job ends.
// One thread at a time runs a job. The end of a shared job is reported on the loop.
//
// The loop takes the job with the smallest urgency first: the oldest slice's, since later ones wait for it anyway. Jobs
// from kPatient on let all others go first, except for one job in eight. Helpers take shared jobs by age, so none waits
// for ever.
// All functions are for the loop's owner, but hasHelpers() is for any thread. One mutex guards the jobs; it is held for
// a few instructions, and drop() waits for a helper's piece of the owner's jobs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace fairring {

class WorkQueue {
 public:
  using Piece = std::function<bool()>;  // does a part of a long job; false when there is no more to do
  using Task = std::function<void()>;
  using Invoke = std::function<void(const Task&)>;  // runs a task and reports what it throws
  static constexpr std::uint64_t kPatient = 1ULL << 63;

  // jobIsOver: called by helpers when takeOver() has something.
  explicit WorkQueue(Task jobIsOver) : jobIsOver_(std::move(jobIsOver)) {}

  void add(const void* owner, std::uint64_t urgency, Piece piece);
  void share(const void* owner, std::uint64_t urgency, Piece piece, Task done);
  void drop(const void* owner);

  bool isEmpty() const { return free_.load(std::memory_order_relaxed) == 0; }  // but for what helpers run
  enum class Among : std::uint8_t { All, Unshared };
  enum class Ran : std::uint8_t { Nothing, Part, Whole };  // of a job
  Ran runPiece(Among among, const Invoke& invoke);
  void runOver(const Invoke& invoke);  // what follows jobs that helpers have ended

  void setHelpers(std::size_t count);  // no fewer than before
  bool hasHelpers() const { return helping_.load(std::memory_order_relaxed) > 0; }

 private:
  enum class State : std::uint8_t { Free, OnLoop, OnHelper, Over };
  struct Job {
    const void* owner;
    Piece piece;
    Task done = nullptr;
    bool isShared = false;
    State state = State::Free;
    bool isDropped = false;  // while it ran
    Error error = {};        // of a helper's piece
  };
  using Key = std::pair<std::uint64_t, std::uint64_t>;  // urgency, then age
  using Jobs = std::map<Key, std::shared_ptr<Job>>;

  void put(std::uint64_t urgency, std::shared_ptr<Job> job);
  std::shared_ptr<Job> next(Among among);
  std::shared_ptr<Job> nextForHelper() const;
  void erase(const std::shared_ptr<Job>& job);
  void help(const std::stop_token& stop);

  const Task jobIsOver_;
  std::mutex mutex_;  // guards the next six; free_ is also read without it
  std::condition_variable_any shared_;
  std::condition_variable pieceEnded_;
  Jobs jobs_;
  std::uint64_t nextAge_ = 0;
  std::uint64_t served_ = 0;  // by the loop
  std::atomic<std::size_t> free_{0};
  std::atomic<std::size_t> helping_{0};
  std::vector<std::jthread> helpers_;  // last: they end first
};

}  // namespace fairring
