#include "backend/tracked_work.h"

#include <ATen/core/jit_type.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "backend/shown_errors.h"
#include "base/error.h"

namespace fairring {

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

std::exception_ptr toException(const Error& error) {
  ShownErrors::all().add(error);
  return std::make_exception_ptr(c10::DistBackendError(error.text()));
}

namespace {

// Lives for ever: c10d keeps the pointer.
const char* asGloosTitle(const char* title) {
  static std::mutex mutex;
  static std::set<std::string> titles;
  const std::lock_guard lock(mutex);
  return titles.insert(concat("gloo", std::strchr(title, ':'))).first->c_str();
}

// The profiler's event is large and is made even without a profiler; so are copies of the inputs.
const char* titleOf(const WorkLabel& label, const Operation& operation) {
  if (!at::hasCallbacks()) return nullptr;
  return label.standsForGloo ? asGloosTitle(operation.title) : operation.title;
}

std::optional<std::vector<at::Tensor>> shownOf(std::span<const at::Tensor> inputs) {
  return at::hasCallbacks() ? std::optional(std::vector(inputs.begin(), inputs.end())) : std::nullopt;
}

}  // namespace

TrackedWork::TrackedWork(WorkLabel label, const Operation& operation, std::span<const at::Tensor> inputs)
    : Work(label.rank, operation.type, titleOf(label, operation), shownOf(inputs)), label_(std::move(label)) {}

std::optional<TrackedWork::Audience> TrackedWork::end(std::exception_ptr failure, Ref* self) {
  // All with the lock held: a thread that sees the call complete may look at what the hooks wrote, and a waiter that
  // drops `left_` may destroy the work.
  const std::lock_guard lock(mutex_);
  if (completed_) return std::nullopt;
  if (!failure) label_.hooks->completed(key_);
  // Before any waiter goes on, as in torch: it may end the profiler, which then has no place for this event.
  if (const auto profiler = std::exchange(recordFunctionEndCallback_, nullptr)) profiler();
  completed_ = true;
  exception_ = std::move(failure);
  Audience audience = {future_, result_, askersState_};
  if (self != nullptr && audience.empty() && waiters_ > 0) left_ = std::move(*self);
  cv_.notify_all();
  return audience;
}

void TrackedWork::tell(const Audience& audience) {
  std::optional<at::ThreadLocalStateGuard> asAsker;
  if (audience.state) asAsker.emplace(*audience.state);
  const std::exception_ptr failure = exception();
  if (audience.future) {
    if (failure) {
      audience.future->setError(failure);
    } else {
      complete(*audience.future);
    }
  }
  if (!audience.result) return;
  const c10d::WorkResult result = failure ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS;
  audience.result->markCompleted(c10::IValue(static_cast<std::int64_t>(result)));
}

FuturePtr TrackedWork::ask(FuturePtr& place, const c10::TypePtr& type) {
  std::unique_lock lock(mutex_);
  if (place) return place;
  const FuturePtr future = place = c10::make_intrusive<c10::ivalue::Future>(type, devices());
  const bool late = completed_;
  if (!late && !askersState_) askersState_ = std::make_shared<at::ThreadLocalState>();
  lock.unlock();
  // Nobody else will tell it; it has no callbacks yet.
  if (late) tell(&place == &future_ ? Audience{future, nullptr, nullptr} : Audience{nullptr, future, nullptr});
  return future;
}

FuturePtr TrackedWork::getFuture() { return ask(future_, valueType()); }

FuturePtr TrackedWork::getFutureResult() { return ask(result_, c10::IntType::get()); }

bool TrackedWork::isCompleted() {
  const std::lock_guard lock(mutex_);
  return completed_;
}

bool TrackedWork::isSuccess() const {
  const std::lock_guard lock(mutex_);
  return completed_ && !exception_;
}

std::exception_ptr TrackedWork::exception() const {
  const std::lock_guard lock(mutex_);
  return completed_ ? exception_ : nullptr;
}

bool TrackedWork::wait(std::chrono::milliseconds timeout) {
  if (!endsWithin(timeout)) {
    std::rethrow_exception(
        toException(makeError(ErrorKind::Timeout, "rank ", label_.rank, ": Timed out: ", label_.title, " (call ",
                              label_.sequenceNumber, " of its group) was not complete after the ", timeout.count(),
                              " ms given to wait(); it goes on: wait again, or for longer")));
  }
  awaitFuture();
  if (const std::exception_ptr failure = exception()) std::rethrow_exception(failure);
  return true;
}

bool TrackedWork::endsWithin(std::chrono::milliseconds timeout) {
  const bool limited = timeout > kNoTimeout;
  const Deadline deadline = limited ? std::chrono::steady_clock::now() + timeout : Deadline::max();
  Ref left;  // dropped after the lock, and never the last: each caller has one
  std::unique_lock lock(mutex_);
  const auto over = [this] { return completed_; };
  if (!completed_) {
    ++waiters_;
    lock.unlock();
    hasten(deadline);
    lock.lock();
    if (limited) {
      cv_.wait_until(lock, deadline, over);
    } else {
      cv_.wait(lock, over);
    }
    --waiters_;
    left.swap(left_);
  }
  return completed_;
}

void TrackedWork::awaitFuture() {
  FuturePtr future;
  {
    const std::lock_guard lock(mutex_);
    future = future_;
  }
  if (future) future->wait();
}

void TrackedWork::synchronize() { wait(kNoTimeout); }

std::uint64_t TrackedWork::getSequencenumber() const { return label_.sequenceNumber; }

}  // namespace fairring
