// NCCL's call as the user holds it. It forwards everything to torch's own Work, except the question for its success:
// that Work throws when it is asked. c10d asks it for every call that is over by the time it has been made (the hooks
// of torch 2.15's flight recorder), in groups of all backends but NCCL's own. Once a stream waits for the call, no
// later one has to be told to begin behind it.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "backend/delegated_call.h"

namespace fairring {

class NcclWork final : public c10d::Work {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;
  using CallPtr = std::shared_ptr<DelegatedCall>;

  // Null for null: NCCL makes no Work for a call that it coalesces with others, nor for one that it runs in the
  // caller's stream. call: null if it is not remembered.
  static WorkPtr of(WorkPtr nccls, CallPtr call = nullptr) {
    if (!nccls) return nullptr;
    return {c10::make_intrusive<NcclWork>(std::move(nccls), std::move(call))};
  }

  NcclWork(WorkPtr nccls, CallPtr call)
      : Work(-1, nccls->retrieveOpType()), nccls_(std::move(nccls)), call_(std::move(call)) {}

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
  void blockCurrentStream() override {
    nccls_->blockCurrentStream();
    letGo();
  }
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

  const WorkPtr nccls_;
  const CallPtr call_;
};

}  // namespace fairring
