// NCCL's call as the user holds it. It forwards everything to torch's own Work, except the question for its success:
// that Work throws when it is asked. c10d asks it for every call that is over by the time it has been made (the hooks
// of torch 2.15's flight recorder), in groups of all backends but NCCL's own. Once a stream waits for the call, no
// later one has to be told to begin behind it.
//
// It keeps its backend: nccl2's Work has a plain pointer to it, and users keep Works longer than a group its backend.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "backend/delegated_call.h"

namespace fairring {

class NcclWork final : public c10d::Work {
 public:
  using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;
  using CallPtr = std::shared_ptr<DelegatedCall>;

  // Null for null: the older NCCL makes no Work for a call that it coalesces with others, nor for one that it
  // runs in the caller's stream. nccl2's Work of a coalesced message is over from the beginning. call: null if it is
  // not remembered.
  static WorkPtr of(const BackendPtr& backend, WorkPtr nccls, CallPtr call = nullptr) {
    if (!nccls) return nullptr;
    return {c10::make_intrusive<NcclWork>(backend, std::move(nccls), std::move(call))};
  }

  NcclWork(BackendPtr backend, WorkPtr nccls, CallPtr call)
      : Work(-1, nccls->retrieveOpType()),
        backend_(std::move(backend)),
        nccls_(std::move(nccls)),
        call_(std::move(call)) {}

  bool isSuccess() const override { return nccls_->isCompleted() && nccls_->exception() == nullptr; }

  bool isCompleted() override { return nccls_->isCompleted(); }
  std::exception_ptr exception() const override { return nccls_->exception(); }
  int sourceRank() const override { return nccls_->sourceRank(); }
  std::vector<at::Tensor> result() override { return nccls_->result(); }
  void synchronize() override {
    nccls_->synchronize();
    letGo();
  }
  bool wait(std::chrono::milliseconds timeout) override {
    const bool isOver = nccls_->wait(timeout);
    letGo();
    return isOver;
  }
  // NCCL of torch 2.15 has c10d's way, a kernel that spins until the future is complete.
  void blockCurrentStream() override { synchronize(); }
  void abort() override { nccls_->abort(); }
  FuturePtr getFuture() override { return nccls_->getFuture(); }
  FuturePtr getFutureResult() override { return nccls_->getFutureResult(); }
  float getDuration() const override { return nccls_->getDuration(); }
  std::uint64_t getSequencenumber() const override { return nccls_->getSequencenumber(); }
#ifdef FAIRRING_TORCH_2_15
  std::chrono::milliseconds getTimeout() const override { return nccls_->getTimeout(); }
  std::uint64_t getCompletionKey() const override { return nccls_->getCompletionKey(); }
#endif

 private:
  void letGo() const {
    if (call_) call_->letGo();
  }

  const BackendPtr backend_;  // before the Work, which goes first
  const WorkPtr nccls_;
  const CallPtr call_;
};

}  // namespace fairring
