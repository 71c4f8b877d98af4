// A call of Gloo's on bytes, as one on the user's tensors: it ends when the bytes that came have been delivered, and
// its future holds the tensors. Delivered on Gloo's thread, which takes no lock of Python's for that. For
// DelegatedWork alone, which gives it to the user.
#pragma once

#include <exception>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "backend/raw_bytes.h"

namespace fairring {

class DeliveredWork final : public c10d::Work {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  // outputs: as c10d has them, one list, or a list for each rank.
  static WorkPtr follow(const WorkPtr& gloo, std::vector<Inbox> inboxes, TensorLists outputs);

  DeliveredWork(c10d::OpType type, TensorLists outputs);

  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  void arrived(const std::vector<Inbox>& inboxes, std::exception_ptr failure);

  const TensorLists outputs_;
  const c10::IValue value_;  // of the future
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace fairring
