// One call on a device's tensors as the engine has it: whether it is over, and with which error. It keeps the call's
// tensors, whoever drops the Work, until the host knows that the device is done with them, or until a wait() lets them
// go: then the waiting stream is behind the call, and memory that is given back there is used again only behind it. So
// a program whose host runs ahead of its device needs no more memory than with NCCL.
// Any thread.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <vector>

#include "backend/completion.h"
#include "backend/tracked_work.h"
#include "base/error.h"

namespace fairring {

class EnqueuedCall final : public TrackedWork {
 public:
  using Ref = c10::intrusive_ptr<EnqueuedCall>;
  using Tensors = std::vector<at::Tensor>;

  // end: the stream on which the call ends.
  EnqueuedCall(WorkLabel label, const Operation& operation, const Tensors& inputs, const Tensors& outputs,
               c10::Stream end);

  // That stream holds nothing behind the call yet. Before any thread but the engine has the call.
  void isEnqueued();
  // On the loop. Takes the reference, because the loop must not drop the last one: tensors may need the GIL.
  static void onDone(Ref call, const Error& error, Completion& completion);

  void holdBack(const c10::Stream& stream) const;  // until the call has ended there, or has failed
  void letGo();                                    // the tensors
  bool hasLetGo() const;

 private:
  // The call's value is DeviceWork's.
  c10::IValue value() override { return {}; }
  c10::TypePtr valueType() const override;
  Tensors take();  // the tensors, which are dropped without the lock
  // Their memory is not reused before everything on the stream is done. A thread that waits for the device may hold the
  // allocator's lock, so this is never called on the loop.
  void leaveToStream(const Tensors& tensors) const;

  const c10::Stream stream_;
  c10::Event end_;
  Tensors tensors_;  // guarded by mutex_ of the base class, as the next
  bool hasLetGo_ = false;
};

}  // namespace fairring
