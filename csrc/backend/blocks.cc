// FairringBackend's way with reduce-scatters and all-gathers: what they read and write as a block for each rank.
//
// The engine reads inputs and writes outputs where they lie, where their memory is plain; others are copied. All
// tensors of a call are one call of the engine's and share slices.
#include <algorithm>
#include <utility>

#include "backend/delegation.h"
#include "backend/fairring_backend.h"
#include "backend/gil.h"
#include "backend/tensor_checks.h"

namespace fairring {
namespace {

namespace op = operation;
using Tensors = Fallback::Tensors;
using TensorLists = Fallback::TensorLists;

bool areOnCpu(const Tensors& tensors) {
  return std::ranges::all_of(tensors, [](const at::Tensor& tensor) { return tensor.is_cpu(); });
}

// A reduce-scatter's result has as many elements as its part of what is reduced, and their dtype.
void requireFit(const Operation& operation, const at::Tensor& output, const at::Tensor& input, std::int64_t elements) {
  const bool fits = isOurs({output}) && output.scalar_type() == input.scalar_type() && output.numel() == elements;
  TORCH_CHECK_WITH(ValueError, fits, operation.verb, ": the output has ", output.numel(), " elements of ",
                   output.scalar_type(), " on ", output.device(), ", this rank's part of the input has ", elements,
                   " of ", input.scalar_type(), " on ", input.device(), ": they must be the same");
}

Contribution contribution(const Operation& operation, const c10d::ReduceOp& op, const at::Tensor& tensor, int ranks) {
  try {
    return contributionOf(operation.verb, op, tensor.scalar_type(), ranks);
  } catch (const Failure& failure) {
    std::rethrow_exception(toException(failure.error()));
  }
}

const std::byte* begin(const at::Tensor& bytes) { return static_cast<const std::byte*>(bytes.const_data_ptr()); }
std::byte* begin(const Inbox& inbox) { return static_cast<std::byte*>(inbox.bytes().data_ptr()); }

// Where the blocks begin that are tensors of their own, or stand one after the other in one.
std::vector<const std::byte*> partsOf(const Tensors& whole, std::uint64_t partBytes, int ranks, Tensors& held) {
  std::vector<const std::byte*> parts;
  for (const at::Tensor& tensor : whole) parts.push_back(begin(held.emplace_back(bytesOf({tensor}))));
  for (int rank = 1; whole.size() == 1 && rank < ranks; ++rank) parts.push_back(parts.back() + partBytes);
  return parts;
}

Block asBytes(const at::Tensor& tensor) { return {.elements = tensor.nbytes(), .reduction = {.dtype = DType::UInt8}}; }

// In a group of one rank: what this rank contributes is the result.
void moveAlone(const BlocksOperand& blocks, double scale) {
  for (const Block& block : blocks.byRank.front()) {
    const Input input{block.from, isFloat(block.reduction.dtype) ? scale : 1.0};
    reduce(block.reduction, block.to, {&input, 1}, block.elements);
  }
}

}  // namespace

Fallback::WorkPtr FairringBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                  const c10d::ReduceScatterOptions& options) {
  for (const Tensors& list : inputs) refuseSparse(op::kReduceScatter.verb, list);
  if (inputs.size() != 1 || !isOurs(inputs.front())) return Fallback::reduce_scatter(outputs, inputs, options);
  const Tensors& parts = inputs.front();
  TORCH_CHECK_WITH(ValueError, outputs.size() == 1 && std::ssize(parts) == getSize(), op::kReduceScatter.verb,
                   ": expected are one output and ", getSize(), " inputs, given are ", outputs.size(), " and ",
                   parts.size());
  for (const at::Tensor& part : parts) {
    TORCH_CHECK_WITH(ValueError, part.scalar_type() == parts.front().scalar_type(), op::kReduceScatter.verb,
                     ": the inputs are of ", parts.front().scalar_type(), " and of ", part.scalar_type());
  }
  const at::Tensor& mine = parts[static_cast<std::size_t>(getRank())];
  requireFit(op::kReduceScatter, outputs.front(), mine, mine.numel());
  return reduceScattered(op::kReduceScatter, outputs, inputs, options);
}

Fallback::WorkPtr FairringBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                        const c10d::ReduceScatterOptions& options) {
  refuseSparse(op::kReduceScatterTensor.verb, {input});
  if (!isOurs({input})) return Fallback::_reduce_scatter_base(output, input, options);
  return reduceScattered(op::kReduceScatterTensor, {output}, {{input}}, options);
}

Fallback::WorkPtr FairringBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                   const c10d::ReduceScatterOptions& options) {
  const Operation& operation = op::kReduceScatterTensorCoalesced;
  refuseSparse(operation.verb, inputs);
  if (!isOurs(inputs)) return Fallback::reduce_scatter_tensor_coalesced(outputs, inputs, options);
  TORCH_CHECK_WITH(ValueError, outputs.size() == inputs.size(), operation.verb, ": ", outputs.size(), " outputs for ",
                   inputs.size(), " inputs");
  TensorLists wholes;
  for (const at::Tensor& input : inputs) wholes.push_back({input});
  return reduceScattered(operation, outputs, wholes, options);
}

Fallback::WorkPtr FairringBackend::reduceScattered(const Operation& operation, const Tensors& outputs,
                                                   const TensorLists& inputs,
                                                   const c10d::ReduceScatterOptions& options) {
  BlocksCall call{.operation = operation,
                  .common = {.reduction = options.reduceOp},
                  .timeout = limitOf(options.timeout),
                  .waited = !options.asyncOp,
                  .outputs = {outputs},
                  .blocks = blocksFor(Half::ReduceScatter)};
  std::vector<Contribution> contributions;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Tensors& parts = inputs[i];
    call.common.tensors.insert(call.common.tensors.end(), parts.begin(), parts.end());
    if (parts.size() == 1) {
      const std::int64_t elements = parts.front().numel() / getSize();
      TORCH_CHECK_WITH(ValueError, elements * getSize() == parts.front().numel(), operation.verb, ": the input's ",
                       parts.front().numel(), " elements can't be divided among ", getSize(), " ranks");
      requireFit(operation, outputs[i], parts.front(), elements);
    }
    contributions.push_back(contribution(operation, options.reduceOp, outputs[i], getSize()));
    for (std::size_t rank = 0; rank < call.blocks.byRank.size(); ++rank) {
      const at::Tensor& like = parts.size() == 1 ? outputs[i] : parts[rank];
      call.blocks.byRank[rank].push_back({.elements = ownElements(like), .reduction = contributions.back().reduction});
    }
  }
  call.scale = scaleOf(contributions);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    orRefused(call, i, [&] {
      const Inbox& inbox = call.memory.outputs.emplace_back(Tensors{outputs[i]});
      call.blocks.byRank[static_cast<std::size_t>(getRank())][i].to = begin(inbox);
      const auto parts = partsOf(inputs[i], outputs[i].nbytes(), getSize(), call.memory.inputs);
      for (std::size_t rank = 0; rank < parts.size(); ++rank) call.blocks.byRank[rank][i].from = parts[rank];
    });
  }
  return runBlocks(std::move(call));
}

Fallback::WorkPtr FairringBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                             const c10d::AllgatherOptions& options) {
  if (!areOnCpu(inputs)) return Fallback::allgather(outputs, inputs, options);
  const char* verb = op::kAllGather.verb;
  requireCount(verb, "input", inputs.size(), 1);
  requireCount(verb, "list of outputs", outputs.size(), 1);
  TensorLists rows;
  for (const at::Tensor& output : outputs.front()) rows.push_back({output});
  return gatherRows(op::kAllGather, rows, inputs, gatherCall(op::kAllGather, outputs.front(), outputs, options));
}

Fallback::WorkPtr FairringBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                   const c10d::AllgatherOptions& options) {
  if (!areOnCpu({input})) return Fallback::_allgather_base(output, input, options);
  return gatherStacked(op::kAllGatherIntoTensor, {output}, {input}, options);
}

Fallback::WorkPtr FairringBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                       const c10d::AllgatherOptions& options) {
  if (!areOnCpu(inputs)) return Fallback::allgather_coalesced(outputs, inputs, options);
  return gatherRows(op::kAllGatherCoalesced, outputs, inputs,
                    gatherCall(op::kAllGatherCoalesced, inputs, outputs, options));
}

Fallback::WorkPtr FairringBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                   const c10d::AllgatherOptions& options) {
  if (!areOnCpu(inputs)) return Fallback::allgather_into_tensor_coalesced(outputs, inputs, options);
  return gatherStacked(op::kAllGatherIntoTensorCoalesced, outputs, inputs, options);
}

// One after the other in an output, or one on the other, which is the same memory.
Fallback::WorkPtr FairringBackend::gatherStacked(const Operation& operation, const Tensors& outputs,
                                                 const Tensors& inputs, const c10d::AllgatherOptions& options) {
  requireCount(operation.verb, "outputs", outputs.size(), inputs.size());
  requireDense(operation.verb, outputs);
  requireDense(operation.verb, inputs);
  requireSameDTypes(operation.verb, outputs, inputs);
  BlocksCall call = gatherCall(operation, outputs, {outputs}, options);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    requireElements(operation.verb, outputs[i].numel(), inputs[i].numel() * getSize());
    for (std::vector<Block>& blocks : call.blocks.byRank) blocks.push_back(asBytes(inputs[i]));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    orRefused(call, i, [&] {
      std::byte* to = begin(call.memory.outputs.emplace_back(Tensors{outputs[i]}));
      for (std::vector<Block>& blocks : call.blocks.byRank) {
        blocks[i].to = to;
        to += blocks[i].elements;
      }
      readFrom(call, i, inputs[i]);
    });
  }
  return runBlocks(std::move(call));
}

Fallback::WorkPtr FairringBackend::gatherRows(const Operation& operation, const TensorLists& rows,
                                              const Tensors& inputs, BlocksCall call) {
  requireDense(operation.verb, inputs);
  requireCount(operation.verb, "outputs, one for each rank", rows.size(), static_cast<std::size_t>(getSize()));
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    requireDense(operation.verb, rows[rank]);
    requireCount(operation.verb, "tensors from each rank", rows[rank].size(), inputs.size());
    requireSameDTypes(operation.verb, rows[rank], inputs);
    for (const at::Tensor& output : rows[rank]) call.blocks.byRank[rank].push_back(asBytes(output));
  }
  const Tensors& mine = rows[static_cast<std::size_t>(getRank())];
  for (std::size_t i = 0; i < inputs.size(); ++i) requireElements(operation.verb, mine[i].numel(), inputs[i].numel());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    orRefused(call, i, [&] {
      for (std::size_t rank = 0; rank < rows.size(); ++rank)
        call.blocks.byRank[rank][i].to = begin(call.memory.outputs.emplace_back(Tensors{rows[rank][i]}));
      readFrom(call, i, inputs[i]);
    });
  }
  return runBlocks(std::move(call));
}

FairringBackend::BlocksCall FairringBackend::gatherCall(const Operation& operation, const Tensors& common,
                                                        TensorLists outputs,
                                                        const c10d::AllgatherOptions& options) const {
  return {.operation = operation,
          .common = {.tensors = common},
          .timeout = limitOf(options.timeout),
          .waited = !options.asyncOp,
          .outputs = std::move(outputs),
          .blocks = blocksFor(Half::AllGather)};
}

BlocksOperand FairringBackend::blocksFor(Half half) const {
  return {half, std::vector<std::vector<Block>>(static_cast<std::size_t>(getSize()))};
}

void FairringBackend::readFrom(BlocksCall& call, std::size_t index, const at::Tensor& input) const {
  const at::Tensor& bytes = call.memory.inputs.emplace_back(bytesOf({input}));
  call.blocks.byRank[static_cast<std::size_t>(getRank())][index].from = begin(bytes);
}

// Where a tensor's memory can't be used the call is made all the same, with what stands in staging in its place: so the
// peers learn of it, and other tensors and calls go on.
void FairringBackend::orRefused(BlocksCall& call, std::size_t index, const std::function<void()>& takeMemory) const {
  try {
    takeMemory();
  } catch (const c10::Error& error) {
    if (getSize() == 1) throw;
    call.refused =
        makeError(ErrorKind::Refused, "rank ", getRank(), " refused tensor ", index, " of ",
                  call.blocks.byRank.front().size(), " in ", call.operation.verb, ": ", error.what_without_backtrace());
    for (std::vector<Block>& blocks : call.blocks.byRank) {
      blocks[index].from = nullptr;
      blocks[index].to = nullptr;
    }
  }
}

Fallback::WorkPtr FairringBackend::runBlocks(BlocksCall call) {
  TORCH_CHECK_WITH(ValueError, !call.common.tensors.empty(), "rank ", getRank(), ": ", call.operation.verb,
                   " without tensors");
  const GilReleased withoutLock;
  refuseIfEnded();
  const Signature signature = signatureOf(call.operation, call.common);
  countCall();
  const std::shared_ptr<Membership> membership = this->membership();
  const std::weak_ptr<Runtime> runtime = membership ? membership->runtime() : std::weak_ptr<Runtime>();
  const auto work = c10::make_intrusive<BlocksWork>(labelOf(signature), call.operation, std::move(call.memory),
                                                    std::move(call.outputs), runtime);
  if (!membership) {
    moveAlone(call.blocks, call.scale);
    work->completeAlone();
    coalescing().add(WorkPtr(work));
    return work;
  }
  return submit(*membership, work,
                {.operands = {},
                 .blocks = std::move(call.blocks),
                 .scale = call.scale,
                 .timeout = call.timeout,
                 .signature = signature,
                 .refused = call.refused,
                 .done = nullptr},
                call.waited);
}

}  // namespace fairring
