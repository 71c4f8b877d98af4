#include "backend/delegated_work.h"

#include <c10/util/Exception.h>

#include <utility>

namespace fairring {
namespace {

// What a stock backend says where a peer or the network failed; nothing where the call itself was wrong.
std::optional<std::string> complaintOf(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const c10::DistError& e) {
    return e.what_without_backtrace();
  } catch (const c10::Error&) {
    return std::nullopt;
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace

DelegatedWork::DelegatedWork(WorkLabel label, const Operation& operation, const std::vector<at::Tensor>& inputs,
                             std::shared_ptr<GroupLink> link)
    : TrackedWork(std::move(label), operation, inputs),
      link_(std::move(link)),
      isPointToPoint_(c10d::isP2POp(operation.type)) {}

DelegatedWork::~DelegatedWork() = default;

void DelegatedWork::release_resources() {
  if (ticket_) link_->finish(*ticket_);
  stock_.reset();
  stockFuture_.reset();
}

void DelegatedWork::enter(const Ref& work, DelegatedCall call) {
  call.failed = [weak = c10::weak_intrusive_ptr<DelegatedWork>(work)](const Error& error) {
    if (const Ref strong = weak.lock()) strong->groupFailed(error);
  };
  work->ticket_ = work->link_->enter(std::move(call));
}

void DelegatedWork::follow(const Ref& work, WorkPtr stock) {
  const auto future = work->isPointToPoint_ ? nullptr : stock->getFuture();
  bool late = false;
  {
    const std::lock_guard lock(work->mutex_);
    work->stock_ = std::move(stock);
    work->stockFuture_ = future;
    late = work->completed_;
  }
  if (future) {
    future->addCallback([work](c10::ivalue::Future& done) { work->stockEnded(done.exception_ptr()); });
  } else if (late) {
    work->abort();
  }
}

void DelegatedWork::refused(const Ref& work, const std::exception_ptr& failure) {
  const auto complaint = complaintOf(failure);
  const Error error = work->link_->error();
  if (complaint && !error) {
    work->stockEnded(failure);
    work->TrackedWork::wait(kNoTimeout);
  }
  if (complaint) work->complaint_ = *complaint;
  work->endAndTell(error ? work->explained(error) : failure);
  if (work->ticket_) work->link_->finish(*work->ticket_);
  std::rethrow_exception(error ? work->explained(error) : failure);
}

void DelegatedWork::stockEnded(const std::exception_ptr& failure) {
  const auto complaint = failure ? complaintOf(failure) : std::nullopt;
  if (!complaint) {
    endAndTell(failure);
    if (ticket_) link_->finish(*ticket_);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    complaint_ = *complaint;
  }
  const Error error = makeError(ErrorKind::Connection, "rank ", label().rank, ": ", label().title,
                                ", which Gloo carries out, failed: ", *complaint);
  if (!ticket_) return endAndTell(toException(error));
  link_->reportStockFailure(error);  // ends all calls, this one too
}

std::exception_ptr DelegatedWork::explained(const Error& error) const {
  const bool said = error.text().find(complaint_) != std::string::npos;
  return toException({error.kind(), said ? error.text()
                                         : concat(error.text(), " (during ", label().title,
                                                  ", of which Gloo says: ", complaint_, ")")});
}

void DelegatedWork::groupFailed(const Error& error) {
  std::unique_lock lock(mutex_);
  const std::exception_ptr failure = explained(error);
  const bool waitedFor = stock_ && isPointToPoint_;
  lock.unlock();
  endAndTell(failure);
  if (waitedFor) abort();
}

void DelegatedWork::endAndTell(std::exception_ptr failure) {
  auto audience = end(std::move(failure));
  if (!audience) return;
  const auto self = c10::intrusive_ptr<DelegatedWork>::reclaim_copy(this);
  link_->post([self, audience = std::move(*audience)] { self->tell(audience); });
}

DelegatedWork::WorkPtr DelegatedWork::stock() const {
  const std::lock_guard lock(mutex_);
  return stock_;
}

bool DelegatedWork::isCompleted() {
  if (TrackedWork::isCompleted()) return true;
  return !stockFuture_ && stock()->isCompleted();
}

bool DelegatedWork::wait(std::chrono::milliseconds timeout) {
  return stockFuture_ || TrackedWork::isCompleted() ? TrackedWork::wait(timeout) : waitThrough(timeout);
}

bool DelegatedWork::waitThrough(std::chrono::milliseconds timeout) {
  std::exception_ptr failure;
  bool done = false;
  try {
    done = stock()->wait(timeout);
  } catch (...) {
    failure = std::current_exception();
  }
  if (!done && !failure && !TrackedWork::isCompleted()) return false;  // the user's abort()
  if (!TrackedWork::isCompleted()) stockEnded(failure);
  return TrackedWork::wait(kNoTimeout);
}

int DelegatedWork::sourceRank() const { return stock()->sourceRank(); }

std::vector<at::Tensor> DelegatedWork::result() {
  const WorkPtr stock = this->stock();
  if (stockFuture_ && isSuccess()) stock->wait(kNoTimeout);  // Gloo completes the future a moment before the Work
  return stock->result();
}

c10::intrusive_ptr<c10::ivalue::Future> DelegatedWork::getFuture() {
  return stockFuture_ ? TrackedWork::getFuture() : stock()->getFuture();
}

c10::intrusive_ptr<c10::ivalue::Future> DelegatedWork::getFutureResult() {
  return stockFuture_ ? TrackedWork::getFutureResult() : stock()->getFutureResult();
}

// Gloo can only break off sends and receives; other stock Works say that they can't.
void DelegatedWork::abort() { stock()->abort(); }

c10::IValue DelegatedWork::value() { return stockFuture_->value(); }

c10::TypePtr DelegatedWork::valueType() const { return stockFuture_->elementType(); }

}  // namespace fairring
