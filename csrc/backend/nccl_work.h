// NCCL's call as the user holds it. It forwards everything to torch's own Work, except the question for its success:
// that Work throws when it is asked. c10d asks it for every call that is over by the time it has been made (the hooks
// of torch 2.15's flight recorder), in groups of all backends but NCCL's own.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

namespace fairring {

class NcclWork final : public c10d::Work {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

  // Null for null: NCCL makes no Work for a call that it coalesces with others.
  static WorkPtr of(WorkPtr nccls) {
    return nccls == nullptr ? nullptr : WorkPtr(c10::make_intrusive<NcclWork>(std::move(nccls)));
  }

  explicit NcclWork(WorkPtr nccls) : Work(-1, nccls->retrieveOpType()), nccls_(std::move(nccls)) {}

  bool isSuccess() const override { return nccls_->isCompleted() && nccls_->exception() == nullptr; }

  bool isCompleted() override { return nccls_->isCompleted(); }
  std::exception_ptr exception() const override { return nccls_->exception(); }
  int sourceRank() const override { return nccls_->sourceRank(); }
  std::vector<at::Tensor> result() override { return nccls_->result(); }
  void synchronize() override { nccls_->synchronize(); }
  bool wait(std::chrono::milliseconds timeout) override { return nccls_->wait(timeout); }
  void blockCurrentStream() override { nccls_->blockCurrentStream(); }
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
  const WorkPtr nccls_;
};

}  // namespace fairring
