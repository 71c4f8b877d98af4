#include "backend/enqueued_call.h"

#include <ATen/core/jit_type.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace fairring {

EnqueuedCall::EnqueuedCall(WorkLabel label, const Operation& operation, const Tensors& inputs, const Tensors& outputs,
                           c10::Stream end)
    : TrackedWork(std::move(label), operation, inputs), stream_(end), end_(end.device_type()), tensors_(inputs) {
  tensors_.insert(tensors_.end(), outputs.begin(), outputs.end());
}

void EnqueuedCall::isEnqueued() { end_.record(stream_); }

void EnqueuedCall::onDone(Ref call, const Error& error, Completion& completion) {
  EnqueuedCall& ended = *call;
  const auto audience = ended.end(error ? toException(error) : nullptr);
  completion.post([&ended, call = std::move(call), audience, failed = static_cast<bool>(error)] {
    const Tensors tensors = ended.take();
    if (failed) ended.leaveToStream(tensors);
    if (audience) ended.tell(*audience);
  });
}

void EnqueuedCall::leaveToStream(const Tensors& tensors) const {
  const c10::impl::VirtualGuardImpl device(stream_.device_type());
  for (const at::Tensor& tensor : tensors) device.recordDataPtrOnStream(tensor.storage().data_ptr(), stream_);
}

void EnqueuedCall::holdBack(const c10::Stream& stream) const { end_.block(stream); }

void EnqueuedCall::letGo() { take(); }

EnqueuedCall::Tensors EnqueuedCall::take() {
  const std::lock_guard lock(mutex_);
  hasLetGo_ = true;
  return std::exchange(tensors_, {});
}

bool EnqueuedCall::hasLetGo() const {
  const std::lock_guard lock(mutex_);
  return hasLetGo_;
}

c10::TypePtr EnqueuedCall::valueType() const { return c10::NoneType::get(); }

}  // namespace fairring
