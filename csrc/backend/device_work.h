// One call on a device's tensors as the user holds it. wait() makes the caller's stream wait, never the host: the whole
// call is on streams when the Work is made. Its future is complete from the beginning, in the same sense: its readers
// run behind the call on their streams. The host learns later of its end (isCompleted(), hooks), and of an error: from
// a later wait(), and from the group's next call. With a timeout, wait() waits on the host. The engine keeps the Work,
// and the Work the tensors, until the device is done with it, whether or not a thread waits. If the device may not be
// done with it after an error, torch's allocator is told of the stream on which the call ends.
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

  // That stream holds nothing behind the call yet. Before any thread but the engine has the Work.
  void isEnqueued();
  // On the loop. Takes the reference, because the loop must not drop the last one: tensors may need the GIL.
  static void onDone(Ref work, const Error& error, Completion& completion);

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  // c10d's own waits for the future.
  void blockCurrentStream() override { synchronize(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  std::vector<at::Tensor> result() override { return outputs_; }

 private:
  c10::IValue value() override { return outputs_; }
  c10::TypePtr valueType() const override;
  // Their memory is not reused before everything on the stream is done. A thread that waits for the device may hold the
  // allocator's lock, so this is never called on the loop.
  void leaveToStream() const;

  const std::vector<at::Tensor> inputs_;
  const std::vector<at::Tensor> outputs_;
  const c10::Stream stream_;
  c10::Event end_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace fairring
