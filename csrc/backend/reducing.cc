// FairringBackend's all-reduces and barriers: each is an all-reduce of the engine, of all its tensors at once.
#include <ATen/MemoryOverlap.h>

#include <chrono>
#include <utility>

#include "backend/delegation.h"
#include "backend/fairring_backend.h"
#include "backend/sparse_tensor.h"
#include "exchange/site_format.h"

namespace fairring {
namespace {

namespace op = operation;

}  // namespace

Fallback::WorkPtr FairringBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors.front().is_cuda()) {
    if (WorkPtr work = reduceOnDevice(op::kAllReduce, tensors, options)) return work;
  }
  if (tensors.size() == 1 && isSparse(tensors.front())) return allReduceSparse(tensors.front(), options);
  const bool ours = tensors.size() == 1 && delegation().reduces(tensors);
  return ours ? reduceInPlace(op::kAllReduce, tensors, options)
              : delegate<&Backend::allreduce>(op::kAllReduce, tensors, tensors, options);
}

Fallback::WorkPtr FairringBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const bool ours = tensors.size() == 1 && isSparse(tensors.front());
  return ours ? allReduceSparse(tensors.front(), options)
              : delegate<&Backend::allreduce_sparse>(op::kAllReduceSparse, tensors, tensors, options);
}

Fallback::WorkPtr FairringBackend::allreduce_coalesced(Tensors& tensors,
                                                       const c10d::AllreduceCoalescedOptions& options) {
  if (WorkPtr work = reduceOnDevice(op::kAllReduceCoalesced, tensors, options)) return work;
  if (!delegation().reduces(tensors))
    return delegate<&Backend::allreduce_coalesced>(op::kAllReduceCoalesced, tensors, tensors, options);
  return reduceInPlace(op::kAllReduceCoalesced, tensors, options);
}

Fallback::WorkPtr FairringBackend::allReduceBetweenSites(const c10::intrusive_ptr<c10d::Backend>& backend,
                                                         const std::string& format, const at::Tensor& tensor,
                                                         const at::Tensor& residual, const c10d::ReduceOp& how) {
  const SiteFormat* const known = siteFormat(format);
  TORCH_CHECK_WITH(ValueError, known != nullptr, unknownSiteFormat(format));
  const std::string verb = concat(op::kAllReduce.verb, " as ", format, " between sites");
  const auto ours = c10::dynamic_intrusive_pointer_cast<FairringBackend>(backend);
  TORCH_CHECK_WITH(ValueError, ours, verb, " needs a group of Fairring's");
  const bool isDense = tensor.layout() == at::kStrided && !tensor.is_meta();
  TORCH_CHECK_WITH(ValueError, isDense && tensor.is_floating_point(), verb, " is of dense floats, not of ",
                   tensor.scalar_type(), ", ", tensor.layout(), " on ", tensor.device());
  TORCH_CHECK_WITH(ValueError, at::has_internal_overlap(tensor) != at::MemOverlap::Yes, verb,
                   " needs a place for each element: clone the tensor");
  const bool fits = residual.is_cpu() && residual.scalar_type() == at::kFloat && isPlain(residual);
  TORCH_CHECK_WITH(ValueError, fits, verb, " needs a contiguous residual of Float on the CPU, not one of ",
                   residual.scalar_type(), " on ", residual.device());
  TORCH_CHECK_WITH(ValueError, residual.numel() == tensor.numel(), verb, ": the tensor has ", tensor.numel(),
                   " elements, the residual ", residual.numel());
  const c10d::ReduceOp::RedOpType kind = how;
  TORCH_CHECK_WITH(ValueError, kind == c10d::ReduceOp::SUM || kind == c10d::ReduceOp::AVG, verb,
                   " knows SUM and AVG alone");
  // Ranks may have floats of different dtypes: what they sum is alike.
  const at::Tensor likeSums = at::empty({tensor.numel()}, at::device(at::kMeta).dtype(at::kFloat));
  HostCall call = ours->reducingCall(op::kAllReduce, {likeSums}, how, ours->limitOf(c10d::kUnsetTimeout), false);
  call.common.siteFormat = known;
  call.outputs = {{tensor}};
  call.read = call.outputs.front();
  call.memory.inputs = {residual};
  call.residual = residual.data_ptr<float>();
  call.operands.front().data = call.memory.change(tensor, at::kFloat);
  return ours->runOnHost(std::move(call));
}

// An all-reduce of one byte, which ends on no rank before all have made it.
Fallback::WorkPtr FairringBackend::barrier(const c10d::BarrierOptions& options) {
  if (options.device && options.device->is_cuda() && delegation().hasStock()) return delegateBarrier(options);
  HostCall call = reducingCall(op::kBarrier, {at::zeros({1}, at::kByte)}, c10d::ReduceOp::SUM, limitOf(options.timeout),
                               !options.asyncOp);
  call.operands.front().data = call.memory.change(call.outputs.front().front());
  call.common = {};
  call.read = {};
  call.outputs = {{}};
  return runOnHost(std::move(call));
}

Fallback::WorkPtr FairringBackend::reduceInPlace(const Operation& operation, const Tensors& tensors,
                                                 const c10d::AllreduceOptions& options) {
  HostCall call = reducingCall(operation, tensors, options.reduceOp, limitOf(options.timeout), !options.asyncOp);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    orRefused(call, i, [&] { call.operands[i].data = call.memory.change(tensors[i]); });
  return runOnHost(std::move(call));
}

FairringBackend::HostCall FairringBackend::reducingCall(const Operation& operation, const Tensors& tensors,
                                                        const c10d::ReduceOp& reduction,
                                                        std::chrono::milliseconds timeout, bool waited) const {
  refuseUnlessUsable();
  std::vector<Contribution> contributions;
  HostCall call{{.timeout = timeout}, operation, {.tensors = tensors, .reduction = reduction}, waited, {tensors}};
  for (const at::Tensor& tensor : tensors) {
    contributions.push_back(contributionTo(operation, reduction, tensor));
    call.operands.push_back({nullptr, ownElements(tensor), contributions.back().reduction});
  }
  call.read = call.outputs.front();
  call.scale = scaleOf(contributions);
  return call;
}

}  // namespace fairring
