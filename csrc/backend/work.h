// One call of the host's tensors as the user holds it: its memory, outcome, a future. It is one call of the engine's,
// whose tensors share slices.
//
// A waiting thread serves the loop if no other does (base/progress_ownership.h). Otherwise the engine's `done` wakes it
// from the loop, with no other thread between. Future callbacks run on the completion thread. Tensors that are not
// contiguous, stand for the conjugate or the negative of their memory, or lie on a device, travel as a plain copy.
// Copying back can take long, so the completion thread does it before any waiter is woken: once the Work is seen
// complete, by any means, the result is there. The copy runs under the thread-local state of the call's caller: its
// tensor may be one that only inference mode may write.
#pragma once

#include <span>
#include <vector>

#include "backend/call_memory.h"
#include "backend/completion.h"
#include "backend/runtime.h"
#include "backend/tracked_work.h"
#include "base/error.h"

namespace fairring {

class FairringWork : public TrackedWork {
 public:
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  // outputs: the content of the future, as in c10d: one list, or one for each rank. runtime: whose loop carries the
  // call out; none for a group of one rank.
  FairringWork(WorkLabel label, const Operation& operation, std::span<const at::Tensor> inputs, CallMemory memory,
               TensorLists outputs, std::weak_ptr<Runtime> runtime);

  // The engine's call is done. On the loop, or on the caller's thread if a group has no engine. Takes the reference,
  // because the loop must not drop the last one: destroying a tensor may need the GIL.
  static void onDone(c10::intrusive_ptr<FairringWork> work, const Error& error, Completion& completion);
  void completeAlone();  // all of it, on the caller's thread: a group of one rank

  std::vector<at::Tensor> result() override;
  void blockCurrentStream() override;

 protected:
  const CallMemory& memory() const { return memory_; }
  // Whether the result must be copied to the tensors when the engine is done, and that copy, where it may take long.
  virtual bool needsCopyBack() const;
  virtual void writeBack();
  // For a constructor, on the caller's thread: code of this call will run elsewhere.
  void keepCallersState() { callersState_ = std::make_shared<at::ThreadLocalState>(); }
  const at::ThreadLocalState& callersState() const { return *callersState_; }
  std::vector<c10::Device> devices() const override;
  void complete(c10::ivalue::Future& future) override;

 private:
  void copyBack();
  Audience finish(Ref* self = nullptr);
  bool isCarriedOut();
  void hasten(Deadline deadline) override;

  c10::IValue value() override;
  c10::TypePtr valueType() const override;

  const std::weak_ptr<Runtime> runtime_;
  const CallMemory memory_;
  const TensorLists outputs_;
  State callersState_;  // set if the call needs it
  // Guarded by mutex_ of the base class.
  bool carriedOut_ = false;
  Error error_;
};

}  // namespace fairring
