// The common part of all our Works: waits, futures, errors, the end that the profiler sees. The code that carries a
// call out ends its Work once, from any thread. The profiler and waiters are told at once. tell() runs future
// callbacks; it may take the GIL and so runs where that may block. Once wait() has returned, the future is complete too
// if somebody asked for it before, as with torch's own backends: programs rely on it. Its callbacks may run later.
#pragma once

#include <ATen/ThreadLocalState.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <type_traits>
#include <vector>

#include "backend/hooks.h"
#include "backend/operation.h"
#include "base/error.h"
#include "base/text.h"

namespace fairring {

struct WorkLabel {
  int rank = 0;
  std::uint64_t sequenceNumber = 0;
  Text title;  // for messages: "all_reduce of 1024 Float32"
  std::shared_ptr<const Hooks> hooks;
  bool standsForGloo = false;  // the program asked for Gloo, and finds Gloo's titles in the profiler
};

class TrackedWork : public c10d::Work {
 public:
  using Ref = c10::intrusive_ptr<TrackedWork>;
  using Deadline = std::chrono::steady_clock::time_point;
  // Torch's thread-local state of a caller (inference mode, modes, autocast, ...), for code of ours that runs on
  // another thread in its place. It costs some microseconds, so it is only taken for a call that has such code.
  using State = std::shared_ptr<const at::ThreadLocalState>;

  // inputs: the user's, whose shapes the profiler shows.
  TrackedWork(WorkLabel label, const Operation& operation, std::span<const at::Tensor> inputs);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  std::uint64_t getSequencenumber() const override;
#ifdef FAIRRING_TORCH_2_15
  std::uint64_t getCompletionKey() const override { return key_; }
#endif

 protected:
  struct Audience {  // those that are still to be told
    c10::intrusive_ptr<c10::ivalue::Future> future;
    c10::intrusive_ptr<c10::ivalue::Future> result;
    State state;  // of the thread that asked first: callbacks see it, as they do when they are added too late to wait

    bool empty() const { return !future && !result; }
  };

  const WorkLabel& label() const { return label_; }
  // Waits that long for the call's end; kNoTimeout: for ever. Returns whether it has come.
  bool endsWithin(std::chrono::milliseconds timeout);
  // The call is over; wakes the waiters. No effect if it was over before. A waiter drops `self`, if there is one and
  // nothing else to tell: it is null then.
  std::optional<Audience> end(std::exception_ptr failure, Ref* self = nullptr);
  void tell(const Audience& audience);

  // The value and type of the future, once the call has ended well.
  virtual c10::IValue value() = 0;
  virtual c10::TypePtr valueType() const = 0;

  // The devices on which its tensors lie, and how the future is completed on them.
  virtual std::vector<c10::Device> devices() const { return {}; }
  virtual void complete(c10::ivalue::Future& future) { future.markCompleted(value()); }

  // A thread is about to wait for the call until then: does what it can for the call meanwhile.
  virtual void hasten(Deadline) {}

 private:
  void awaitFuture();  // until it is complete, if there is one and the call is over
  // The future in that place, made when it is first asked for.
  c10::intrusive_ptr<c10::ivalue::Future> ask(c10::intrusive_ptr<c10::ivalue::Future>& place, const c10::TypePtr& type);

  const WorkLabel label_;
  const std::uint64_t key_ = Hooks::nextKey();
  // Guarded by mutex_ of the base class, as completed_ and exception_ are.
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  c10::intrusive_ptr<c10::ivalue::Future> result_;
  State askersState_;
  int waiters_ = 0;
  Ref left_;  // to itself: for a waiter to drop
};

// The exception that the user sees for an Error: torch.distributed.DistBackendError with its text.
std::exception_ptr toException(const Error& error);

// Returns what the attempt returns. A Failure of it goes on as that exception.
template <class Attempt>
std::invoke_result_t<Attempt> withTorchsErrors(const Attempt& attempt) {
  try {
    return attempt();
  } catch (const Failure& failure) {
    std::rethrow_exception(toException(failure.error()));
  }
}

}  // namespace fairring
