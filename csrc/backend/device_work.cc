#include "backend/device_work.h"

#include <ATen/core/jit_type.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace fairring {

DeviceWork::DeviceWork(WorkLabel label, const Operation& operation, std::vector<at::Tensor> inputs,
                       std::vector<at::Tensor> outputs, c10::Stream end)
    : TrackedWork(std::move(label), operation, inputs),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      stream_(end),
      end_(stream_.device_type()) {}

void DeviceWork::isEnqueued() {
  end_.record(stream_);
  future_ = c10::make_intrusive<c10::ivalue::Future>(valueType(), std::vector{stream_.device()});
  const c10::StreamGuard onIt(stream_);
  future_->markCompleted(value());
}

void DeviceWork::onDone(Ref work, const Error& error, Completion& completion) {
  DeviceWork& ended = *work;
  const auto audience = ended.end(error ? toException(error) : nullptr);
  completion.post([&ended, work = std::move(work), audience, failed = static_cast<bool>(error)] {
    if (failed) ended.leaveToStream();
    if (audience) ended.tell(*audience);
  });
}

void DeviceWork::leaveToStream() const {
  const c10::impl::VirtualGuardImpl device(stream_.device_type());
  for (const auto* tensors : {&inputs_, &outputs_}) {
    for (const at::Tensor& tensor : *tensors) device.recordDataPtrOnStream(tensor.storage().data_ptr(), stream_);
  }
}

bool DeviceWork::wait(std::chrono::milliseconds timeout) {
  if (timeout > kNoTimeout) return TrackedWork::wait(timeout);
  if (const std::exception_ptr failure = exception()) std::rethrow_exception(failure);
  const c10::impl::VirtualGuardImpl device(stream_.device_type());
  end_.block(device.getStream(stream_.device()));
  return true;
}

c10::TypePtr DeviceWork::valueType() const { return c10::ListType::create(c10::TensorType::get()); }

}  // namespace fairring
