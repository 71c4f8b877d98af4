#include "base/work_queue.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <system_error>

namespace fairring {

void WorkQueue::add(const void* owner, std::uint64_t urgency, Piece piece) {
  put(urgency, std::make_shared<Job>(Job{.owner = owner, .piece = std::move(piece)}));
}

void WorkQueue::share(const void* owner, std::uint64_t urgency, Piece piece, Task done) {
  put(urgency,
      std::make_shared<Job>(Job{.owner = owner, .piece = std::move(piece), .done = std::move(done), .isShared = true}));
  if (hasHelpers()) shared_.notify_one();
}

void WorkQueue::put(std::uint64_t urgency, std::shared_ptr<Job> job) {
  const std::lock_guard lock(mutex_);
  jobs_.emplace(Key(urgency, nextAge_++), std::move(job));
  ++free_;
}

void WorkQueue::erase(const std::shared_ptr<Job>& job) {
  std::erase_if(jobs_, [&](const auto& entry) { return entry.second == job; });
}

// A piece that runs on the loop is the caller's own. Jobs end here, without the mutex: what they hold may be large.
void WorkQueue::drop(const void* owner) {
  std::vector<std::shared_ptr<Job>> dropped;
  std::unique_lock lock(mutex_);
  std::erase_if(jobs_, [&](const auto& entry) {
    Job& job = *entry.second;
    if (job.owner != owner) return false;
    if (job.state == State::Free) --free_;
    job.isDropped = true;
    dropped.push_back(entry.second);
    return true;
  });
  pieceEnded_.wait(lock, [&] {
    return std::ranges::none_of(dropped, [](const auto& job) { return job->state == State::OnHelper; });
  });
}

std::shared_ptr<WorkQueue::Job> WorkQueue::next(Among among) {
  constexpr std::uint64_t kPatientEvery = 8;
  const auto isOurs = [among](const auto& entry) {
    return entry.second->state == State::Free && (among == Among::All || !entry.second->isShared);
  };
  auto found = std::ranges::find_if(jobs_, isOurs);
  if (found != jobs_.end() && ++served_ % kPatientEvery == 0) {
    const auto patient = std::find_if(jobs_.lower_bound({kPatient, 0}), jobs_.end(), isOurs);
    if (patient != jobs_.end()) found = patient;
  }
  return found == jobs_.end() ? nullptr : found->second;
}

WorkQueue::Ran WorkQueue::runPiece(Among among, const Invoke& invoke) {
  if (isEmpty()) return Ran::Nothing;
  std::unique_lock lock(mutex_);
  const std::shared_ptr<Job> job = next(among);
  if (!job) return Ran::Nothing;
  job->state = State::OnLoop;
  --free_;
  lock.unlock();
  Ran ran = Ran::Nothing;
  invoke([&] { ran = job->piece() ? Ran::Part : Ran::Whole; });
  lock.lock();
  if (job->isDropped) return Ran::Whole;  // by its own piece
  if (ran == Ran::Part) {
    job->state = State::Free;
    ++free_;
    return ran;
  }
  erase(job);
  lock.unlock();
  if (ran == Ran::Whole && job->done) invoke(job->done);
  return Ran::Whole;
}

void WorkQueue::runOver(const Invoke& invoke) {
  for (;;) {
    std::unique_lock lock(mutex_);
    const auto over = std::ranges::find_if(jobs_, [](const auto& entry) { return entry.second->state == State::Over; });
    if (over == jobs_.end()) return;
    const std::shared_ptr<Job> job = over->second;
    jobs_.erase(over);
    lock.unlock();
    invoke([&] {
      if (job->error) throw Failure(job->error);
      job->done();
    });
  }
}

void WorkQueue::setHelpers(std::size_t count) {
  try {
    while (helpers_.size() < count) {
      helpers_.emplace_back([this](const std::stop_token& stop) {
        pthread_setname_np(pthread_self(), "fairring help");
        help(stop);
      });
    }
    // NOLINTNEXTLINE(bugprone-empty-catch): there are too many threads; the loop does without
  } catch (const std::system_error&) {
  }
  helping_ = helpers_.size();
}

std::shared_ptr<WorkQueue::Job> WorkQueue::nextForHelper() const {
  const Jobs::value_type* oldest = nullptr;
  for (const auto& entry : jobs_) {
    const bool isOurs = entry.second->isShared && entry.second->state == State::Free;
    if (isOurs && (oldest == nullptr || entry.first.second < oldest->first.second)) oldest = &entry;
  }
  return oldest == nullptr ? nullptr : oldest->second;
}

void WorkQueue::help(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  std::shared_ptr<Job> job;
  while (shared_.wait(lock, stop, [&] { return (job = nextForHelper()) != nullptr; })) {
    job->state = State::OnHelper;
    --free_;
    lock.unlock();
    bool more = false;
    try {
      more = job->piece();
    } catch (const Failure& failure) {
      job->error = failure.error();
    } catch (const std::exception& exception) {
      job->error = makeError(ErrorKind::System, "a helper thread was stopped by an exception: ", exception.what());
    }
    lock.lock();
    job->state = more ? State::Free : State::Over;
    const bool isDropped = job->isDropped;
    job.reset();  // what it holds ends on the loop
    if (isDropped) {
      pieceEnded_.notify_all();
    } else if (more) {
      ++free_;
    } else {
      lock.unlock();
      jobIsOver_();
      lock.lock();
    }
  }
}

}  // namespace fairring
