#include "backend/delivered_work.h"

#include <c10/util/Exception.h>

#include <utility>

namespace fairring {

DeliveredWork::WorkPtr DeliveredWork::follow(const WorkPtr& gloo, std::vector<Inbox> inboxes, TensorLists outputs) {
  const auto work = c10::make_intrusive<DeliveredWork>(gloo->retrieveOpType(), std::move(outputs));
  gloo->getFuture()->addCallback([work, inboxes = std::move(inboxes)](c10::ivalue::Future& done) {
    work->arrived(inboxes, done.exception_ptr());
  });
  return work;
}

DeliveredWork::DeliveredWork(c10d::OpType type, TensorLists outputs)
    : Work(-1, type),
      outputs_(std::move(outputs)),
      value_(outputs_.size() == 1 ? c10::IValue(outputs_.front()) : c10::IValue(outputs_)),
      future_(c10::make_intrusive<c10::ivalue::Future>(value_.type())) {}

void DeliveredWork::arrived(const std::vector<Inbox>& inboxes, std::exception_ptr failure) {
  try {
    if (!failure) {
      for (const Inbox& inbox : inboxes) inbox.deliver();
    }
  } catch (...) {
    failure = std::current_exception();
  }
  finish(failure);
  if (failure) {
    future_->setError(failure);
  } else {
    future_->markCompleted(value_);
  }
}

std::vector<at::Tensor> DeliveredWork::result() {
  TORCH_CHECK(outputs_.size() <= 1, "this Work has a list of tensors for each rank: take get_future().value()");
  return outputs_.empty() ? std::vector<at::Tensor>() : outputs_.front();
}

}  // namespace fairring
