#include "backend/work.h"

#include <ATen/core/jit_type.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <utility>

namespace fairring {

FairringWork::FairringWork(WorkLabel label, const Operation& operation, std::span<const at::Tensor> inputs,
                           CallMemory memory, TensorLists outputs, std::weak_ptr<Runtime> runtime)
    : TrackedWork(std::move(label), operation, inputs),
      runtime_(std::move(runtime)),
      memory_(std::move(memory)),
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

bool FairringWork::needsCopyBack() const { return !std::ranges::all_of(memory_.outputs, &Inbox::isDirect); }

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
  for (const Inbox& output : memory_.outputs) output.deliver();
}

std::vector<c10::Device> FairringWork::devices() const {
  std::vector<at::Tensor> all;
  for (const auto& list : outputs_) all.insert(all.end(), list.begin(), list.end());
  return devicesOf(all);
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

c10::IValue FairringWork::value() {
  return outputs_.size() == 1 ? c10::IValue(outputs_.front()) : c10::IValue(outputs_);
}

c10::TypePtr FairringWork::valueType() const {
  const c10::TypePtr one = c10::ListType::create(c10::TensorType::get());
  return outputs_.size() == 1 ? one : c10::ListType::create(one);
}

std::vector<at::Tensor> FairringWork::result() {
  TORCH_CHECK(outputs_.size() <= 1, "this Work has a list of tensors for each rank: take get_future().value()");
  return outputs_.empty() ? std::vector<at::Tensor>() : outputs_.front();
}

}  // namespace fairring
