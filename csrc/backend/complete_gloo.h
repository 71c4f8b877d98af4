// Gloo, with what stock Gloo lacks in the calls that move tensors: dtypes of every kind, tensors that are not
// contiguous, outputs that are stacked or concatenated, tensors of unequal sizes where each rank knows all of them. It
// lets Gloo move bytes (raw_bytes.h), in one call of Gloo's for each, so that ranks which call in the same order agree.
// What has nothing to add goes to Gloo as it is.
//
// Calls of dense CPU tensors that reduce, and all-gathers, are not Gloo's. Any thread; made for a call.
#pragma once

#include <cstdint>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "backend/raw_bytes.h"

namespace fairring {

class CompleteGloo final : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;
  using Sizes = std::vector<std::int64_t>;

  explicit CompleteGloo(c10::intrusive_ptr<Backend> gloo);

  const std::string getBackendName() const override { return gloo_->getBackendName(); }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, Sizes& outputSizes, Sizes& inputSizes,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
#ifdef C10D_BACKEND_HAS_HOOKS  // 2.15: new, with no older name
  WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options) override;
#endif

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override { return gloo_->send(tensors, destination, tag); }
  WorkPtr recv(Tensors& tensors, int source, int tag) override { return gloo_->recv(tensors, source, tag); }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override { return gloo_->recvAnysource(tensors, tag); }
  WorkPtr barrier(const c10d::BarrierOptions& options) override { return gloo_->barrier(options); }

 private:
  WorkPtr exchange(const Tensors& outputs, at::Tensor bytes, Sizes outputBytes, Sizes inputBytes,
                   const c10d::AllToAllOptions& options);

  const c10::intrusive_ptr<Backend> gloo_;
};

}  // namespace fairring
