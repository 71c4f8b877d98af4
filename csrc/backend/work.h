// One all-reduce call as the user holds it: tensors, how it ended, a future. It may consist of several engine calls
// (one per tensor of a coalesced call) and is complete with the last of them; the first error wins.
//
// Waiters are woken by the engine's `done` itself, on the loop, and depend on no other thread. Future callbacks and the
// profiler's end run on the completion thread. Tensors that are not contiguous, or stand for the conjugate or the
// negative of their memory, travel as a plain copy; copying back can take long, so it is done on the completion thread,
// before anyone is woken: whoever sees the Work complete, by whatever means, sees the result.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "backend/completion.h"
#include "base/error.h"

namespace fairring {

struct WorkLabel {
  int rank = 0;
  std::uint64_t sequenceNumber = 0;
  std::string title;  // for messages: "all_reduce SUM of 1024 Float32"
};

class FairringWork : public c10d::Work {
 public:
  FairringWork(WorkLabel label, std::vector<at::Tensor> tensors);

  // The contiguous memory that stands for tensor `index` until the call is done.
  const at::Tensor& buffer(std::size_t index) const { return buffers_[index]; }

  // One engine call is done. On the loop, or on the caller's thread where a group has no engine.
  // Takes the reference, for its holder must not be the last one on the loop: tensors may need Python's lock to die.
  static void onDone(c10::intrusive_ptr<FairringWork> work, const Error& error, Completion& completion);
  void completeAlone();  // all of it, on the caller's thread: a group of one rank

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override;

 private:
  struct Audience {  // what the completion thread has to call
    std::function<void()> profiler;
    c10::intrusive_ptr<c10::ivalue::Future> future;
  };

  bool needsCopyBack() const;
  void copyBack();
  Audience finish();  // wakes the waiters; returns those who still have to be told
  void tell(const Audience& audience) const;

  const WorkLabel label_;
  const std::vector<at::Tensor> tensors_;
  const std::vector<at::Tensor> buffers_;
  // Guarded by mutex_ of the base class, as completed_ is.
  std::size_t pending_;
  Error error_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // made when it is asked for
};

// What the user sees of an Error: torch.distributed.DistBackendError with its text.
std::exception_ptr toException(const Error& error);

}  // namespace fairring
