// FairringBackend's way with calls that reduce: every one is an all-reduce of the engine's, on the tensor itself or on
// a copy, of whose result this rank keeps what is its own. So all of them know the same operations and dtypes, and give
// the same bits.
#include <algorithm>
#include <chrono>
#include <utility>

#include "backend/delegation.h"
#include "backend/fairring_backend.h"
#include "backend/gil.h"

namespace fairring {
namespace {

namespace op = operation;
using Tensors = Fallback::Tensors;
using WorkRef = c10::intrusive_ptr<FairringWork>;

bool isOurs(const Tensors& tensors) {
  return !tensors.empty() && std::ranges::all_of(tensors, [](const at::Tensor& tensor) {
    return serverOfReduction(tensor.device().type(), tensor.layout()) == Server::Fairring;
  });
}

void refuseSparse(const Operation& operation, const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK_WITH(ValueError, !tensor.device().is_cpu() || tensor.layout() == at::kStrided, operation.verb,
                     " is not defined for tensors of layout ", tensor.layout(),
                     ": make them dense, or take all_reduce");
  }
}

// A reduce-scatter's result has as many elements as its part of what is reduced, and their dtype.
void requireFit(const Operation& operation, const at::Tensor& output, const at::Tensor& input, std::int64_t elements) {
  const bool fits = isOurs({output}) && output.scalar_type() == input.scalar_type() && output.numel() == elements;
  TORCH_CHECK_WITH(ValueError, fits, operation.verb, ": the output has ", output.numel(), " elements of ",
                   output.scalar_type(), " on ", output.device(), ", this rank's part of the input has ", elements,
                   " of ", input.scalar_type(), " on ", input.device(), ": they must be the same");
}

// In a group of one rank: what this rank contributes is the result.
void contributeAlone(const at::Tensor& buffer, const Contribution& contribution) {
  const Input input{buffer.data_ptr(), contribution.scale};
  if (input.scale != 1.0) reduce(contribution.reduction, buffer.data_ptr(), {&input, 1}, ownElements(buffer));
}

std::vector<Contribution> contributionsOf(const Operation& operation, const std::vector<Reduced>& all,
                                          const c10d::ReduceOp& reduction, int ranks) {
  std::vector<Contribution> contributions;
  contributions.reserve(all.size());
  try {
    for (const Reduced& one : all)
      contributions.push_back(contributionOf(operation.verb, reduction, one.buffer.scalar_type(), ranks));
  } catch (const Failure& failure) {
    std::rethrow_exception(toException(failure.error()));
  }
  return contributions;
}

}  // namespace

Fallback::WorkPtr FairringBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const bool ours = tensors.size() == 1 && isOurs(tensors);
  return ours ? reduceInPlace(op::kAllReduce, tensors, options) : Fallback::allreduce(tensors, options);
}

Fallback::WorkPtr FairringBackend::allreduce_coalesced(Tensors& tensors,
                                                       const c10d::AllreduceCoalescedOptions& options) {
  if (!isOurs(tensors)) return Fallback::allreduce_coalesced(tensors, options);
  return reduceInPlace(op::kAllReduceCoalesced, tensors, options);
}

Fallback::WorkPtr FairringBackend::reduceInPlace(const Operation& operation, const Tensors& tensors,
                                                 const c10d::AllreduceOptions& options) {
  std::vector<Reduced> all;
  all.reserve(tensors.size());
  std::ranges::transform(tensors, std::back_inserter(all), Reduced::inPlace);
  const Common common{.tensors = tensors, .reduction = options.reduceOp};
  return reduceAll({operation, common, options.reduceOp, limitOf(options.timeout), !options.asyncOp}, std::move(all),
                   tensors);
}

Fallback::WorkPtr FairringBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  refuseSparse(op::kReduce, tensors);
  if (tensors.size() != 1 || !isOurs(tensors)) return Fallback::reduce(tensors, options);
  const at::Tensor& tensor = tensors.front();
  const Common common{.tensors = tensors, .root = options.rootRank, .reduction = options.reduceOp};
  return reduceAll({op::kReduce, common, options.reduceOp, limitOf(options.timeout), !options.asyncOp},
                   {getRank() == options.rootRank ? Reduced::inPlace(tensor) : Reduced::ofACopy(tensor)}, tensors);
}

Fallback::WorkPtr FairringBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                  const c10d::ReduceScatterOptions& options) {
  for (const Tensors& list : inputs) refuseSparse(op::kReduceScatter, list);
  if (inputs.size() != 1 || !isOurs(inputs.front())) return Fallback::reduce_scatter(outputs, inputs, options);
  const Tensors& parts = inputs.front();
  TORCH_CHECK_WITH(ValueError, outputs.size() == 1 && std::ssize(parts) == getSize(), op::kReduceScatter.verb,
                   ": expected are one output and ", getSize(), " inputs, given are ", outputs.size(), " and ",
                   parts.size());
  for (const at::Tensor& part : parts) {
    TORCH_CHECK_WITH(ValueError, part.scalar_type() == parts.front().scalar_type(), op::kReduceScatter.verb,
                     ": the inputs are of ", parts.front().scalar_type(), " and of ", part.scalar_type());
  }
  const auto mine = parts.begin() + getRank();
  requireFit(op::kReduceScatter, outputs.front(), *mine, mine->numel());
  std::int64_t before = 0;
  std::for_each(parts.begin(), mine, [&before](const at::Tensor& part) { before += part.numel(); });
  const Common common{.tensors = parts, .reduction = options.reduceOp};
  return reduceAll({op::kReduceScatter, common, options.reduceOp, limitOf(options.timeout), !options.asyncOp},
                   {Reduced::scattered(parts, outputs.front(), before)}, outputs);
}

Fallback::WorkPtr FairringBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                        const c10d::ReduceScatterOptions& options) {
  refuseSparse(op::kReduceScatterTensor, {input});
  if (!isOurs({input})) return Fallback::_reduce_scatter_base(output, input, options);
  return reduceScattered(op::kReduceScatterTensor, {output}, {input}, options);
}

Fallback::WorkPtr FairringBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                   const c10d::ReduceScatterOptions& options) {
  refuseSparse(op::kReduceScatterTensorCoalesced, inputs);
  if (!isOurs(inputs)) return Fallback::reduce_scatter_tensor_coalesced(outputs, inputs, options);
  return reduceScattered(op::kReduceScatterTensorCoalesced, outputs, inputs, options);
}

Fallback::WorkPtr FairringBackend::reduceScattered(const Operation& operation, const Tensors& outputs,
                                                   const Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_WITH(ValueError, outputs.size() == inputs.size(), operation.verb, ": ", outputs.size(), " outputs for ",
                   inputs.size(), " inputs");
  std::vector<Reduced> all;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::int64_t elements = inputs[i].numel() / getSize();
    TORCH_CHECK_WITH(ValueError, elements * getSize() == inputs[i].numel(), operation.verb, ": the input's ",
                     inputs[i].numel(), " elements can't be divided among ", getSize(), " ranks");
    requireFit(operation, outputs[i], inputs[i], elements);
    all.push_back(Reduced::scattered({inputs[i]}, outputs[i], getRank() * elements));
  }
  const Common common{.tensors = inputs, .reduction = options.reduceOp};
  return reduceAll({operation, common, options.reduceOp, limitOf(options.timeout), !options.asyncOp}, std::move(all),
                   outputs);
}

Fallback::WorkPtr FairringBackend::reduceAll(const ReducingCall& call, std::vector<Reduced> all,
                                             const Tensors& outputs) {
  const GilReleased withoutLock;
  refuseIfEnded();
  const std::vector<Contribution> contributions = contributionsOf(call.operation, all, call.reduction, getSize());
  const Signature signature = signatureOf(call.operation, call.common);
  countCall();
  const std::shared_ptr<Membership> membership = this->membership();
  const std::weak_ptr<Runtime> runtime = membership ? membership->runtime() : std::weak_ptr<Runtime>();
  const auto work =
      c10::make_intrusive<FairringWork>(labelOf(signature), call.operation, std::move(all), outputs, runtime);
  if (!membership) {
    for (std::size_t i = 0; i < contributions.size(); ++i) contributeAlone(work->buffer(i), contributions[i]);
    work->completeAlone();
    coalescing().add(WorkPtr(work));
    return work;
  }
  try {
    const auto begun = std::chrono::steady_clock::now();
    Group& group = membership->group(call.timeout);
    // Second: while ranks are missing Gloo is not begun, and the call has one timeout for both.
    awaitGloo(call.timeout - std::chrono::ceil<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun));
    Completion& completion = membership->completion();
    for (std::size_t i = 0; i < contributions.size(); ++i) {
      const at::Tensor& buffer = work->buffer(i);
      group.submit(
          {.data = buffer.data_ptr(),
           .elements = ownElements(buffer),
           .reduction = contributions[i].reduction,
           .scale = contributions[i].scale,
           .timeout = call.timeout,
           .signature = signature,
           .done = [work = WorkRef(work), &completion](
                       const Error& error) mutable { FairringWork::onDone(std::move(work), error, completion); }},
          call.waited);
    }
  } catch (const Failure& failure) {
    std::rethrow_exception(toException(failure.error()));
  }
  coalescing().add(WorkPtr(work));
  return work;
}

}  // namespace fairring
