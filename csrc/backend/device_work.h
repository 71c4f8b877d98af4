// One call on a device's tensors as the user holds it. wait() makes the caller's stream wait, never the host: the whole
// call is on streams when the Work is made. Its future is complete from the beginning, in the same sense: its readers
// run behind the call on their streams. The host learns later of its end (isCompleted(), hooks), and of an error: from
// a later wait(), and from the group's next call. With a timeout, wait() waits on the host. The Work has the outputs;
// the engine keeps the tensors of a call that nobody waits for (enqueued_call.h), and drops them at wait(). If the
// device may not be done with them after an error, torch's allocator is told of the stream on which the call ends.
#pragma once

#include <vector>

#include "backend/enqueued_call.h"

namespace fairring {

class DeviceWork : public c10d::Work {
 public:
  DeviceWork(EnqueuedCall::Ref call, std::vector<at::Tensor> outputs);

  // The call is on its streams, the last of which is `end`, and holds nothing behind it yet.
  void isEnqueued(const c10::Stream& end);

  bool isCompleted() override { return call_->isCompleted(); }
  bool isSuccess() const override { return call_->isSuccess(); }
  std::exception_ptr exception() const override { return call_->exception(); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(kNoTimeout); }
  // c10d's own waits for the future.
  void blockCurrentStream() override { synchronize(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override { return call_->getFutureResult(); }
  std::vector<at::Tensor> result() override { return outputs_; }
  std::uint64_t getSequencenumber() const override { return call_->getSequencenumber(); }
#ifdef FAIRRING_TORCH_2_15
  std::uint64_t getCompletionKey() const override { return call_->getCompletionKey(); }
#endif

 private:
  const EnqueuedCall::Ref call_;
  const std::vector<at::Tensor> outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace fairring
