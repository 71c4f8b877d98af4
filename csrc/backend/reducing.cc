// FairringBackend's all-reduces, reduces and barriers: each is an all-reduce of the engine, of all its tensors at once,
// on the tensors themselves, or, for a reduce on a rank that is not the root, on a copy.
#include <algorithm>
#include <chrono>
#include <utility>

#include "backend/delegation.h"
#include "backend/fairring_backend.h"
#include "backend/gil.h"
#include "backend/sparse_tensor.h"
#include "exchange/site_format.h"

namespace fairring {
namespace {

namespace op = operation;
using Tensors = Fallback::Tensors;

std::vector<Operand> operandsOf(const FairringWork& work, const std::vector<Contribution>& contributions) {
  std::vector<Operand> operands;
  operands.reserve(contributions.size());
  for (std::size_t i = 0; i < contributions.size(); ++i) {
    const Reduced& one = work.reduced(i);
    void* const data = one.isRefused ? nullptr : one.buffer.data_ptr();
    operands.push_back({data, ownElements(one.buffer), contributions[i].reduction});
  }
  return operands;
}

float* residualOf(const Reduced& one) { return one.residual.defined() ? one.residual.data_ptr<float>() : nullptr; }

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
  for (const at::Tensor& one : {tensor, residual}) {
    const bool fits =
        one.is_cpu() && one.layout() == at::kStrided && one.scalar_type() == at::kFloat && one.is_contiguous();
    TORCH_CHECK_WITH(ValueError, fits, verb, " needs contiguous tensors of Float on the CPU, not of ",
                     one.scalar_type(), " on ", one.device());
  }
  TORCH_CHECK_WITH(ValueError, residual.numel() == tensor.numel(), verb, ": the tensor has ", tensor.numel(),
                   " elements, the residual ", residual.numel());
  const c10d::ReduceOp::RedOpType kind = how;
  TORCH_CHECK_WITH(ValueError, kind == c10d::ReduceOp::SUM || kind == c10d::ReduceOp::AVG, verb,
                   " knows SUM and AVG alone");
  HostCopies copies;  // of none: the tensor is on the CPU
  Reduced one = Reduced::inPlace(tensor, copies);
  one.residual = residual;
  const Common common{.tensors = {tensor}, .reduction = kind, .siteFormat = known};
  return ours->reduceAll({op::kAllReduce, common, how, ours->limitOf(c10d::kUnsetTimeout), false}, {std::move(one)},
                         {tensor});
}

// An all-reduce of one byte, which ends on no rank before all have made it.
Fallback::WorkPtr FairringBackend::barrier(const c10d::BarrierOptions& options) {
  if (options.device && options.device->is_cuda() && delegation().hasStock()) return delegateBarrier(options);
  ReducingCall call{op::kBarrier, {}, c10d::ReduceOp::SUM, limitOf(options.timeout), !options.asyncOp};
  std::vector<Reduced> one{Reduced::inPlace(at::zeros({1}, at::kByte), call.copies)};
  return reduceAll(std::move(call), std::move(one), {});
}

Reduced FairringBackend::reducedOrRefused(ReducingCall& call, std::size_t index, const at::Tensor& like,
                                          std::int64_t elements, const std::function<Reduced()>& make) const {
  try {
    return make();
  } catch (const c10::Error& error) {
    if (getSize() == 1) throw;
    call.refused =
        makeError(ErrorKind::Refused, "rank ", getRank(), " refused tensor ", index, " of ", call.common.tensors.size(),
                  " in ", call.operation.verb, ": ", error.what_without_backtrace())
            .about({getRank()});
    return Reduced::refused(like, elements);
  }
}

Fallback::WorkPtr FairringBackend::reduceInPlace(const Operation& operation, const Tensors& tensors,
                                                 const c10d::AllreduceOptions& options) {
  std::vector<Reduced> all;
  all.reserve(tensors.size());
  Common common{.tensors = tensors, .reduction = options.reduceOp};
  ReducingCall call{operation, std::move(common), options.reduceOp, limitOf(options.timeout), !options.asyncOp};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    all.push_back(
        reducedOrRefused(call, i, tensor, tensor.numel(), [&] { return Reduced::inPlace(tensor, call.copies); }));
  }
  return reduceAll(std::move(call), std::move(all), tensors);
}

Fallback::WorkPtr FairringBackend::reduceAll(ReducingCall call, std::vector<Reduced> all, const Tensors& outputs) {
  const GilReleased withoutLock;
  refuseUnlessUsable();
  std::vector<Contribution> contributions;
  contributions.reserve(all.size());
  for (const Reduced& one : all) contributions.push_back(contributionTo(call.operation, call.reduction, one.buffer));
  const Signature signature = signatureOf(call.operation, call.common);
  countCall();
  const std::shared_ptr<Membership> membership = this->membership();
  const std::weak_ptr<Runtime> runtime = membership ? membership->runtime() : std::weak_ptr<Runtime>();
  const auto work =
      c10::make_intrusive<FairringWork>(labelOf(signature), call.operation, outputs, std::move(all), outputs, runtime);
  if (!membership) {
    call.copies.await();
    for (std::size_t i = 0; i < contributions.size(); ++i) contributeAlone(work->reduced(i).buffer, contributions[i]);
    work->completeAlone();
    coalescing().add(WorkPtr(work));
    return work;
  }
  return submit(*membership, work,
                {.operands = operandsOf(*work, contributions),
                 .inputs = call.copies.leaveTo(membership->copyWaiters(), call.waited),
                 .scale = scaleOf(contributions),
                 .siteFormat = call.common.siteFormat,
                 .residual = residualOf(work->reduced(0)),
                 .timeout = call.timeout,
                 .signature = signature,
                 .refused = call.refused,
                 .done = nullptr},
                call.waited);
}

Fallback::WorkPtr FairringBackend::submit(Membership& membership, const WorkRef& work, Call call, bool waited) {
  withTorchsErrors([&] {
    Group& group = membership.group(call.timeout);
    call.done = [work = WorkRef(work), &completion = membership.completion(),
                 first = std::move(call.done)](const Error& error) mutable {
      if (first) first(error);
      FairringWork::onDone(std::move(work), error, completion);
    };
    group.submit(std::move(call), waited);
  });
  membership.completion().letGo();
  coalescing().add(WorkPtr(work));
  return work;
}

}  // namespace fairring
