#include "backend/work.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/jit_type.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <utility>

#include "backend/raw_bytes.h"

namespace fairring {
namespace {

at::Tensor plain(const at::Tensor& tensor) { return tensor.resolve_conj().resolve_neg(); }

// Elements of the result that share memory would be written twice.
void requireDistinctElements(const at::Tensor& result) { at::assert_no_internal_overlap(result); }

}  // namespace

Reduced Reduced::inPlace(const at::Tensor& tensor, HostCopies& copies) {
  const at::AutoDispatchBelowAutograd noGradient;
  requireDistinctElements(tensor);
  const bool isPlain = !tensor.is_conj() && !tensor.is_neg() && tensor.is_contiguous();
  const at::Tensor buffer = copies.of(isPlain ? tensor : plain(tensor).contiguous());
  return {.buffer = buffer, .result = tensor, .back = WayBack::of(tensor)};
}

Reduced Reduced::refused(const at::Tensor& like, std::int64_t elements) {
  return {.buffer = at::empty({elements}, like.options().device(at::kMeta)), .result = {}, .isRefused = true};
}

FairringWork::FairringWork(WorkLabel label, const Operation& operation, std::span<const at::Tensor> inputs,
                           std::vector<Reduced> all, std::vector<at::Tensor> outputs, std::weak_ptr<Runtime> runtime)
    : TrackedWork(std::move(label), operation, inputs),
      runtime_(std::move(runtime)),
      all_(std::move(all)),
      outputs_(std::move(outputs)) {
  if (FairringWork::needsCopyBack()) keepCallersState();
}

void FairringWork::onDone(c10::intrusive_ptr<FairringWork> work, const Error& error, Completion& completion) {
  {
    const std::lock_guard lock(work->mutex_);
    work->carriedOut_ = true;
    work->error_ = error;
  }
  const bool hasResults = !error || error.kind() == ErrorKind::Refused;  // of the tensors that were not refused
  if (hasResults && work->needsCopyBack()) {
    completion.post([work = std::move(work)] {
      work->copyBack();
      work->tell(work->finish());
    });
    return;
  }
  FairringWork& ended = *work;
  Ref self = std::move(work);
  Audience audience = ended.finish(&self);
  if (!self) return;  // a waiter has it, and may have dropped it
  if (audience.empty()) return completion.release(std::move(self));
  completion.post([&ended, self = std::move(self), audience = std::move(audience)] { ended.tell(audience); });
}

bool FairringWork::isCarriedOut() {
  const std::lock_guard lock(mutex_);
  return carriedOut_;
}

void FairringWork::hasten(Deadline deadline) {
  if (const std::shared_ptr<Runtime> runtime = runtime_.lock()) {
    runtime->threads().slices.loop().progressUntil([this] { return isCarriedOut(); }, deadline);
    runtime->completion().letGo();
  }
}

void FairringWork::completeAlone() {
  carriedOut_ = true;
  if (needsCopyBack()) copyBack();
  tell(finish());
}

bool FairringWork::needsCopyBack() const {
  return std::ranges::any_of(all_, [](const Reduced& one) { return one.needsCopy(); });
}

void FairringWork::copyBack() {
  try {
    const at::ThreadLocalStateGuard asCaller(callersState());
    writeBack();
  } catch (const std::exception& e) {  // on a thread of ours: the user's wait() has to throw it
    const std::lock_guard lock(mutex_);
    error_ = makeError(ErrorKind::Usage, "rank ", label().rank, ": the result of ", label().title,
                       " can't be copied into the tensor: ", e.what());
  }
}

void FairringWork::writeBack() {
  for (const Reduced& one : all_) {
    if (!one.needsCopy()) continue;
    const Writing writing(one.result);
    if (!one.back) {
      one.result.copy_(one.buffer);
    } else {
      one.back->copy([&one] { one.result.copy_(one.buffer, /*non_blocking=*/true); });
    }
  }
}

FairringWork::Audience FairringWork::finish(Ref* self) {
  return end(error_ ? toException(error_) : nullptr, self).value_or(Audience{});
}

// The results are there for any stream. A future takes the current streams for those that they come on.
void FairringWork::complete(c10::ivalue::Future& future) {
  const c10::MultiStreamGuard onThem(outStreamsOf(devices()));
  TrackedWork::complete(future);
}

// c10d's own has the device wait for the future, and only CUDA's can.
void FairringWork::blockCurrentStream() {
  if (devices().empty()) return Work::blockCurrentStream();
  synchronize();
}

c10::IValue FairringWork::value() { return outputs_; }

c10::TypePtr FairringWork::valueType() const { return c10::ListType::create(c10::TensorType::get()); }

std::vector<at::Tensor> FairringWork::result() { return outputs_; }

}  // namespace fairring
