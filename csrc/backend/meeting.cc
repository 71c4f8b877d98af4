#include "backend/meeting.h"

#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace fairring {

Meeting::Meeting(StorePtr store) : store_(std::move(store)) {}

void Meeting::begin(Meet meet, std::function<void()> giveUp) {
  const std::lock_guard lock(mutex_);
  isUnderWay_ = true;
  giveUp_ = std::move(giveUp);
  try {
    thread_ = std::make_unique<PatientThread>([self = shared_from_this(), meet = std::move(meet)] { self->run(meet); });
  } catch (const std::system_error&) {  // no threads left: the ranks meet at the first call
    isUnderWay_ = false;
  }
}

namespace {

// The store's own wait ends when the key comes, but not when the group fails; and c10d warns if it ends in vain.
constexpr std::chrono::seconds kSoon{3};

void awaitOthers(c10d::Store& own, c10d::Store& abortable, const std::string& key) {
  try {
    own.wait({key}, kSoon);
  } catch (const std::exception&) {
    abortable.wait({key}, c10d::Store::kNoTimeout);
  }
}

}  // namespace

void Meeting::run(const Meet& meet) {
  try {
    const StorePtr own = storeOfOwn();
    const StorePtr store = c10::make_intrusive<AbortableStore>(own, broken_.get_token());
    awaitOthers(*own, *store, meet());
    // NOLINTNEXTLINE(bugprone-empty-catch): the first call finds out why; or the store went with the rank that has it
  } catch (const std::exception&) {
  }
  const std::lock_guard lock(mutex_);
  isUnderWay_ = false;
  changed_.notify_all();
}

// A connection of its own, because a waiting thread blocks all others on its connection. Made while all is well: a
// connection to a store that has gone takes the store's timeout.
Meeting::StorePtr Meeting::storeOfOwn() {
  StorePtr shared;
  {
    const std::lock_guard lock(mutex_);
    shared = store_;
  }
  check(shared != nullptr, ErrorKind::Aborted, "the group has ended");
  return shared->clone();
}

void Meeting::breakOff() {
  broken_.request_stop();
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void Meeting::end() {
  const auto until = std::chrono::steady_clock::now() + kPatienceWithRanks;
  std::unique_lock lock(mutex_);
  const auto over = [this] { return !isUnderWay_; };
  const std::function<void()> giveUp = std::exchange(giveUp_, nullptr);
  if (!giveUp) return;  // it has not begun, or has ended
  changed_.wait_until(lock, until, [&] { return over() || broken_.stop_requested(); });
  if (!over()) {
    lock.unlock();
    broken_.request_stop();
    giveUp();
    lock.lock();
  }
  store_.reset();
  std::unique_ptr<PatientThread> thread;
  thread.swap(thread_);
  lock.unlock();
  if (thread) thread->endBy(PatientThread::Clock::now() + kPatience);
}

}  // namespace fairring
