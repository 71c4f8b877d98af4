#include "backend/device_work.h"

#include <ATen/core/jit_type.h>
#include <c10/core/StreamGuard.h>

#include <utility>

#include "backend/cuda_device.h"

namespace fairring {

DeviceWork::DeviceWork(EnqueuedCall::Ref call, std::vector<at::Tensor> outputs)
    : Work(-1, call->retrieveOpType()), call_(std::move(call)), outputs_(std::move(outputs)) {}

void DeviceWork::isEnqueued(const c10::Stream& end) {
  call_->isEnqueued();
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                     std::vector{end.device()});
  const c10::StreamGuard onIt(end);
  future_->markCompleted(outputs_);
}

bool DeviceWork::wait(std::chrono::milliseconds timeout) {
  if (timeout > kNoTimeout) return call_->wait(timeout);
  if (const std::exception_ptr failure = exception()) std::rethrow_exception(failure);
  const c10::Device device = outputs_.front().device();
  call_->holdBack(callersStream(device));
  call_->letGo();
  return true;
}

}  // namespace fairring
