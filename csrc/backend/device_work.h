// One call on a device's tensors as the user holds it. wait() makes the caller's stream wait, never the host: the
// whole call is on streams when the Work is made. Its future is complete from the beginning, in the same sense: what
// reads it does so behind the call. The host learns later of its end (isCompleted(), hooks), and of an error: from a
// wait() that comes after it, and from the group's next call. With a timeout, wait() waits on the host.
// The engine keeps the Work, and it the tensors, until the device is done with it, whether anybody waits or not. After
// an error the device may not be done with it: then torch's allocator learns of the stream on which the call ends.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <vector>

#include "backend/completion.h"
#include "backend/tracked_work.h"
#include "base/error.h"

namespace fairring {

class DeviceWork : public TrackedWork {
 public:
  using Ref = c10::intrusive_ptr<DeviceWork>;

  // end: the stream on which the call ends.
  DeviceWork(WorkLabel label, const Operation& operation, std::vector<at::Tensor> inputs,
             std::vector<at::Tensor> outputs, c10::Stream end);

  // That stream holds nothing behind the call yet. Before anybody else but the engine has the Work.
  void isEnqueued();
  // On the loop. Takes the reference, for its holder must not be the last one there: tensors may need Python's lock.
  static void onDone(Ref work, const Error& error, Completion& completion);

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  std::vector<at::Tensor> result() override { return outputs_; }

 private:
  c10::IValue value() override { return outputs_; }
  c10::TypePtr valueType() const override;
  // Their memory is given to nobody else before all that is on the stream. The allocator's lock may be held by who
  // waits for the device: never on the loop.
  void leaveToStream() const;

  const std::vector<at::Tensor> inputs_;
  const std::vector<at::Tensor> outputs_;
  const c10::Stream stream_;
  c10::Event end_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace fairring
