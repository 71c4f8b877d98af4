#include "backend/complete_gloo.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <utility>

#include "backend/delivered_work.h"
#include "backend/operation.h"
#include "backend/tensor_checks.h"

namespace fairring {
namespace {

namespace op = operation;
using Tensors = CompleteGloo::Tensors;
using TensorLists = CompleteGloo::TensorLists;
using Sizes = CompleteGloo::Sizes;

Sizes bytesOfEach(const Tensors& tensors) {
  Sizes sizes;
  sizes.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) sizes.push_back(byteCount({tensor}));
  return sizes;
}

// From rows of the first dimension to bytes; no sizes: equal ones.
Sizes splitInBytes(const Sizes& rows, const at::Tensor& tensor, int ranks) {
  c10d::checkSplitSizes(rows, tensor, ranks);
  const std::int64_t all = tensor.size(0);
  const std::int64_t rowBytes = all == 0 ? 0 : byteCount({tensor}) / all;
  Sizes bytes = rows.empty() ? Sizes(static_cast<std::size_t>(ranks), all / ranks) : rows;
  for (std::int64_t& size : bytes) size *= rowBytes;
  return bytes;
}

}  // namespace

CompleteGloo::CompleteGloo(c10::intrusive_ptr<Backend> gloo)
    : Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)) {}

CompleteGloo::WorkPtr CompleteGloo::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const char* call = op::kBroadcast.verb;
  requireDense(call, tensors);
  requireCount(call, "tensor", tensors.size(), 1);
  if (getRank() == options.rootRank) {
    Tensors bytes{bytesOf(tensors)};
    return DeliveredWork::follow(gloo_->broadcast(bytes, options), {}, {tensors});
  }
  const Inbox inbox(tensors);
  Tensors bytes{inbox.bytes()};
  return DeliveredWork::follow(gloo_->broadcast(bytes, options), {inbox}, {tensors});
}

CompleteGloo::WorkPtr CompleteGloo::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  const char* call = op::kGather.verb;
  requireDense(call, inputs);
  std::vector<Inbox> inboxes;
  TensorLists to(outputs.size());
  for (std::size_t list = 0; list < outputs.size(); ++list) {
    requireDense(call, outputs[list]);
    for (const at::Tensor& output : outputs[list]) {
      requireSameDTypes(call, {output}, inputs);
      if (!inputs.empty()) requireElements(call, output.numel(), inputs.front().numel());
      to[list].push_back(inboxes.emplace_back(Tensors{output}).bytes());
    }
  }
  Tensors from;
  for (const at::Tensor& input : inputs) from.push_back(bytesOf({input}));
  return DeliveredWork::follow(gloo_->gather(to, from, options), std::move(inboxes), outputs);
}

#ifdef C10D_BACKEND_HAS_HOOKS
CompleteGloo::WorkPtr CompleteGloo::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                                       const c10d::GatherOptions& options) {
  const char* call = op::kGatherIntoTensor.verb;
  requireDense(call, {input});
  Tensors from{bytesOf({input})};
  TensorLists to;
  if (getRank() != options.rootRank) return DeliveredWork::follow(gloo_->gather(to, from, options), {}, {{}});
  requireDense(call, {output});
  requireSameDTypes(call, {output}, {input});
  requireElements(call, output.numel(), input.numel() * getSize());
  const Inbox inbox({output});
  Tensors& parts = to.emplace_back();
  const std::int64_t count = inbox.bytes().numel() / getSize();
  for (int rank = 0; rank < getSize(); ++rank) parts.push_back(inbox.bytes().narrow(0, rank * count, count));
  return DeliveredWork::follow(gloo_->gather(to, from, options), {inbox}, {{output}});
}
#endif

CompleteGloo::WorkPtr CompleteGloo::scatter(Tensors& outputs, TensorLists& inputs,
                                            const c10d::ScatterOptions& options) {
  const char* call = op::kScatter.verb;
  requireDense(call, outputs);
  requireCount(call, "output", outputs.size(), 1);
  TensorLists from(inputs.size());
  for (std::size_t list = 0; list < inputs.size(); ++list) {
    requireDense(call, inputs[list]);
    for (const at::Tensor& input : inputs[list]) {
      requireSameDTypes(call, outputs, {input});
      requireElements(call, outputs.front().numel(), input.numel());
      from[list].push_back(bytesOf({input}));
    }
  }
  const Inbox inbox(outputs);
  Tensors to{inbox.bytes()};
  return DeliveredWork::follow(gloo_->scatter(to, from, options), {inbox}, {outputs});
}

CompleteGloo::WorkPtr CompleteGloo::alltoall_base(at::Tensor& output, at::Tensor& input, Sizes& outputSizes,
                                                  Sizes& inputSizes, const c10d::AllToAllOptions& options) {
  const char* call = op::kAllToAllSingle.verb;
  requireDense(call, {output, input});
  requireSameDTypes(call, {output}, {input});
  return exchange({output}, bytesOf({input}), splitInBytes(outputSizes, output, getSize()),
                  splitInBytes(inputSizes, input, getSize()), options);
}

CompleteGloo::WorkPtr CompleteGloo::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  const char* call = op::kAllToAll.verb;
  requireDense(call, outputs);
  requireDense(call, inputs);
  requireCount(call, "outputs", outputs.size(), static_cast<std::size_t>(getSize()));
  requireCount(call, "inputs", inputs.size(), static_cast<std::size_t>(getSize()));
  requireSameDTypes(call, outputs, inputs);
  return exchange(outputs, bytesOf(inputs), bytesOfEach(outputs), bytesOfEach(inputs), options);
}

// Always with sizes, for Gloo without them is another algorithm, and the ranks must take the same.
CompleteGloo::WorkPtr CompleteGloo::exchange(const Tensors& outputs, at::Tensor bytes, Sizes outputBytes,
                                             Sizes inputBytes, const c10d::AllToAllOptions& options) {
  const auto mine = static_cast<std::size_t>(getRank());
  TORCH_CHECK_WITH(ValueError, outputBytes[mine] == inputBytes[mine], "rank ", getRank(), " has ", inputBytes[mine],
                   " B for itself and room for ", outputBytes[mine], " B of its own: they must be the same");
  const Inbox inbox(outputs);
  at::Tensor to = inbox.bytes();
  return DeliveredWork::follow(gloo_->alltoall_base(to, bytes, outputBytes, inputBytes, options), {inbox}, {outputs});
}

CompleteGloo::WorkPtr CompleteGloo::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return gloo_->allreduce(tensors, options);
}

CompleteGloo::WorkPtr CompleteGloo::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return gloo_->allreduce_sparse(tensors, options);
}

CompleteGloo::WorkPtr CompleteGloo::allreduce_coalesced(Tensors& tensors,
                                                        const c10d::AllreduceCoalescedOptions& options) {
  return gloo_->allreduce_coalesced(tensors, options);
}

}  // namespace fairring
