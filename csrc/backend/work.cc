#include "backend/work.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/jit_type.h>

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

FairringWork::FairringWork(WorkLabel label, const Operation& operation, std::vector<at::Tensor> tensors,
                           std::weak_ptr<Runtime> runtime)
    : TrackedWork(std::move(label), operation, tensors),
      runtime_(std::move(runtime)),
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
  FairringWork& ended = *work;
  Ref self = std::move(work);
  Audience audience = ended.finish(&self);
  if (!self) return;  // a waiter has it, and may have let go of it
  completion.post([&ended, self = std::move(self), audience = std::move(audience)] { ended.tell(audience); });
}

bool FairringWork::isCarriedOut() {
  const std::lock_guard lock(mutex_);
  return pending_ == 0;
}

void FairringWork::hasten(Deadline deadline) {
  if (const std::shared_ptr<Runtime> runtime = runtime_.lock()) {
    runtime->threads().slices.loop().serveUntil([this] { return isCarriedOut(); }, deadline);
  }
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
    error_ = makeError(ErrorKind::Usage, "rank ", label().rank, ": the result of ", label().title,
                       " can't be copied into the tensor: ", e.what());
  }
}

FairringWork::Audience FairringWork::finish(Ref* self) {
  return end(error_ ? toException(error_) : nullptr, self).value_or(Audience{});
}

c10::IValue FairringWork::value() { return tensors_; }

c10::TypePtr FairringWork::valueType() const { return c10::ListType::create(c10::TensorType::get()); }

std::vector<at::Tensor> FairringWork::result() { return tensors_; }

}  // namespace fairring
