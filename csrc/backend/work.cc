#include "backend/work.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>

#include <utility>

namespace fairring {
namespace {

std::vector<at::Tensor> contiguousBuffers(const std::vector<at::Tensor>& tensors) {
  const at::AutoDispatchBelowAutograd noGradient;
  std::vector<at::Tensor> buffers;
  buffers.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    at::assert_no_internal_overlap(tensor);
    buffers.push_back(tensor.resolve_conj().resolve_neg().contiguous());
  }
  return buffers;
}

}  // namespace

std::exception_ptr toException(const Error& error) {
  return std::make_exception_ptr(c10::DistBackendError(error.text()));
}

FairringWork::FairringWork(WorkLabel label, std::vector<at::Tensor> tensors)
    : Work(label.rank, c10d::OpType::ALLREDUCE, "fairring:all_reduce", tensors),
      label_(std::move(label)),
      tensors_(std::move(tensors)),
      buffers_(contiguousBuffers(tensors_)),
      pending_(tensors_.size()) {}

void FairringWork::onDone(c10::intrusive_ptr<FairringWork> work, const Error& error, Completion& completion) {
  {
    const std::lock_guard lock(work->mutex_);
    if (error && !work->error_) work->error_ = error;
    if (--work->pending_ > 0) return;
  }
  if (!work->error_ && work->needsCopyBack()) {
    completion.post([work = std::move(work)] {
      work->copyBack();
      work->tell(work->finish());
    });
    return;
  }
  Audience audience = work->finish();
  // Always, though mostly there is nobody to tell: the waiter, who is awake now, may let go of the work at any time.
  completion.post([work = std::move(work), audience = std::move(audience)] { work->tell(audience); });
}

void FairringWork::completeAlone() {
  pending_ = 0;
  if (needsCopyBack()) copyBack();
  tell(finish());
}

bool FairringWork::needsCopyBack() const {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!buffers_[i].is_same(tensors_[i])) return true;
  }
  return false;
}

void FairringWork::copyBack() {
  try {
    const at::AutoDispatchBelowAutograd noGradient;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (!buffers_[i].is_same(tensors_[i])) tensors_[i].copy_(buffers_[i]);
    }
  } catch (const std::exception& e) {  // on a thread of ours: it has to come out of the user's wait()
    const std::lock_guard lock(mutex_);
    error_ = makeError(ErrorKind::Usage, "rank ", label_.rank, ": the result of ", label_.title,
                       " can't be copied into the tensor: ", e.what());
  }
}

FairringWork::Audience FairringWork::finish() {
  Audience audience;
  {
    const std::lock_guard lock(mutex_);
    completed_ = true;
    audience = {std::exchange(recordFunctionEndCallback_, nullptr), future_};
  }
  cv_.notify_all();
  return audience;
}

void FairringWork::tell(const Audience& audience) const {
  if (audience.profiler) audience.profiler();
  if (!audience.future) return;
  if (error_) {
    audience.future->setError(toException(error_));
  } else {
    audience.future->markCompleted(c10::IValue(tensors_));
  }
}

c10::intrusive_ptr<c10::ivalue::Future> FairringWork::getFuture() {
  std::unique_lock lock(mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  const bool late = completed_;
  lock.unlock();
  if (late) tell({nullptr, future_});  // nobody else will; it has no callbacks yet
  return future_;
}

bool FairringWork::isCompleted() {
  const std::lock_guard lock(mutex_);
  return completed_;
}

bool FairringWork::isSuccess() const {
  const std::lock_guard lock(mutex_);
  return completed_ && !error_;
}

std::exception_ptr FairringWork::exception() const {
  const std::lock_guard lock(mutex_);
  return completed_ && error_ ? toException(error_) : nullptr;
}

bool FairringWork::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto over = [this] { return completed_; };
  if (timeout <= kNoTimeout) {
    cv_.wait(lock, over);
  } else if (!cv_.wait_for(lock, timeout, over)) {
    throw c10::DistBackendError(concat("rank ", label_.rank, ": ", label_.title, " (call ", label_.sequenceNumber,
                                       " of its group) was not complete after the ", timeout.count(),
                                       " ms given to wait(); it goes on: wait again, or for longer"));
  }
  if (error_) std::rethrow_exception(toException(error_));
  return true;
}

void FairringWork::synchronize() { wait(kNoTimeout); }

std::vector<at::Tensor> FairringWork::result() { return tensors_; }

std::uint64_t FairringWork::getSequencenumber() const { return label_.sequenceNumber; }

}  // namespace fairring
