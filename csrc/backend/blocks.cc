// FairringBackend's calls with blocks, among them reduce-scatters and all-gathers, which have a block for each rank.
// Calls with a root are in rooted.cc.
//
// The engine reads inputs and writes outputs in place if their memory is plain; others are copied. All tensors of a
// call are one call of the engine's and share slices.
#include <utility>

#include "backend/delegation.h"
#include "backend/fairring_backend.h"
#include "backend/tensor_checks.h"

namespace fairring {
namespace {

namespace op = operation;
using Tensors = Fallback::Tensors;
using TensorLists = Fallback::TensorLists;

// A reduce-scatter's result has as many elements as its part of the input, and their dtype.
void requireFit(const Delegation& delegation, const Operation& operation, const at::Tensor& output,
                const at::Tensor& input, std::int64_t elements) {
  const bool fits =
      delegation.reduces({output}) && output.scalar_type() == input.scalar_type() && output.numel() == elements;
  TORCH_CHECK_WITH(ValueError, fits, operation.verb, ": the output has ", output.numel(), " elements of ",
                   output.scalar_type(), " on ", output.device(), ", this rank's part of the input has ", elements,
                   " of ", input.scalar_type(), " on ", input.device(), ": they must be the same");
}

// The addresses of blocks that are tensors of their own, or lie end to end in one tensor.
std::vector<const std::byte*> partsOf(const Tensors& whole, std::uint64_t partBytes, int ranks, CallMemory& memory) {
  std::vector<const std::byte*> parts;
  for (const at::Tensor& tensor : whole) parts.push_back(memory.read(tensor));
  for (int rank = 1; whole.size() == 1 && rank < ranks; ++rank) parts.push_back(parts.back() + partBytes);
  return parts;
}

}  // namespace

Fallback::WorkPtr FairringBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                  const c10d::ReduceScatterOptions& options) {
  for (const Tensors& list : inputs) delegation().refuseSparse(op::kReduceScatter.verb, list);
  if (inputs.size() != 1 || !delegation().reduces(inputs.front()))
    return delegate<&Backend::reduce_scatter>(op::kReduceScatter, outputs, outputs, inputs, options);
  const Tensors& parts = inputs.front();
  TORCH_CHECK_WITH(ValueError, outputs.size() == 1 && std::ssize(parts) == getSize(), op::kReduceScatter.verb,
                   ": expected are one output and ", getSize(), " inputs, given are ", outputs.size(), " and ",
                   parts.size());
  for (const at::Tensor& part : parts) {
    TORCH_CHECK_WITH(ValueError, part.scalar_type() == parts.front().scalar_type(), op::kReduceScatter.verb,
                     ": the inputs are of ", parts.front().scalar_type(), " and of ", part.scalar_type());
  }
  const at::Tensor& mine = parts[static_cast<std::size_t>(getRank())];
  requireFit(delegation(), op::kReduceScatter, outputs.front(), mine, mine.numel());
  return reduceScattered(op::kReduceScatter, outputs, inputs, options);
}

Fallback::WorkPtr FairringBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                        const c10d::ReduceScatterOptions& options) {
  if (WorkPtr work = reduceScatterOnDevice(op::kReduceScatterTensor, {output}, {input}, options)) return work;
  delegation().refuseSparse(op::kReduceScatterTensor.verb, {input});
  if (!delegation().reduces({input}))
    return delegate<&Backend::_reduce_scatter_base>(op::kReduceScatterTensor, {input}, output, input, options);
  return reduceScattered(op::kReduceScatterTensor, {output}, {{input}}, options);
}

Fallback::WorkPtr FairringBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                   const c10d::ReduceScatterOptions& options) {
  const Operation& operation = op::kReduceScatterTensorCoalesced;
  if (WorkPtr work = reduceScatterOnDevice(operation, outputs, inputs, options)) return work;
  delegation().refuseSparse(operation.verb, inputs);
  if (!delegation().reduces(inputs))
    return delegate<&Backend::reduce_scatter_tensor_coalesced>(operation, inputs, outputs, inputs, options);
  TORCH_CHECK_WITH(ValueError, outputs.size() == inputs.size(), operation.verb, ": ", outputs.size(), " outputs for ",
                   inputs.size(), " inputs");
  TensorLists wholes;
  for (const at::Tensor& input : inputs) wholes.push_back({input});
  return reduceScattered(operation, outputs, wholes, options);
}

Fallback::WorkPtr FairringBackend::reduceScattered(const Operation& operation, const Tensors& outputs,
                                                   const TensorLists& inputs,
                                                   const c10d::ReduceScatterOptions& options) {
  HostCall call{{.pattern = Pattern::ReduceScatter,
                 .blocks = BlockRows(static_cast<std::size_t>(getSize())),
                 .timeout = limitOf(options.timeout)},
                operation,
                {.reduction = options.reduceOp},
                !options.asyncOp,
                {outputs}};
  std::vector<Contribution> contributions;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Tensors& parts = inputs[i];
    call.common.tensors.insert(call.common.tensors.end(), parts.begin(), parts.end());
    if (parts.size() == 1) {
      const std::int64_t elements = parts.front().numel() / getSize();
      TORCH_CHECK_WITH(ValueError, elements * getSize() == parts.front().numel(), operation.verb, ": the input's ",
                       parts.front().numel(), " elements can't be divided among ", getSize(), " ranks");
      requireFit(delegation(), operation, outputs[i], parts.front(), elements);
    }
    contributions.push_back(contributionTo(operation, options.reduceOp, outputs[i]));
    for (std::size_t rank = 0; rank < call.blocks.size(); ++rank) {
      const at::Tensor& like = parts.size() == 1 ? outputs[i] : parts[rank];
      call.blocks[rank].push_back({.elements = ownElements(like), .reduction = contributions.back().reduction});
    }
  }
  call.read = call.common.tensors;
  call.scale = scaleOf(contributions);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    orRefused(call, i, [&] {
      call.blocks[static_cast<std::size_t>(getRank())][i].to = call.memory.write(outputs[i]);
      const auto parts = partsOf(inputs[i], outputs[i].nbytes(), getSize(), call.memory);
      for (std::size_t rank = 0; rank < parts.size(); ++rank) call.blocks[rank][i].from = parts[rank];
    });
  }
  return runOnHost(std::move(call));
}

Fallback::WorkPtr FairringBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                             const c10d::AllgatherOptions& options) {
  if (!delegation().serves(inputs))
    return delegate<&Backend::allgather>(op::kAllGather, inputs, outputs, inputs, options);
  const char* verb = op::kAllGather.verb;
  requireCount(verb, "input", inputs.size(), 1);
  requireCount(verb, "list of outputs", outputs.size(), 1);
  TensorLists rows;
  for (const at::Tensor& output : outputs.front()) rows.push_back({output});
  return gatherRows(op::kAllGather, rows, inputs, gatherCall(op::kAllGather, outputs.front(), outputs, options));
}

Fallback::WorkPtr FairringBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                   const c10d::AllgatherOptions& options) {
  if (WorkPtr work = allGatherOnDevice(op::kAllGatherIntoTensor, {output}, {input}, options)) return work;
  if (!delegation().serves(input))
    return delegate<&Backend::_allgather_base>(op::kAllGatherIntoTensor, {input}, output, input, options);
  return gatherStacked(op::kAllGatherIntoTensor, {output}, {input}, options);
}

Fallback::WorkPtr FairringBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                       const c10d::AllgatherOptions& options) {
  if (!delegation().serves(inputs))
    return delegate<&Backend::allgather_coalesced>(op::kAllGatherCoalesced, inputs, outputs, inputs, options);
  return gatherRows(op::kAllGatherCoalesced, outputs, inputs,
                    gatherCall(op::kAllGatherCoalesced, inputs, outputs, options));
}

Fallback::WorkPtr FairringBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                   const c10d::AllgatherOptions& options) {
  const Operation& operation = op::kAllGatherIntoTensorCoalesced;
  if (WorkPtr work = allGatherOnDevice(operation, outputs, inputs, options)) return work;
  if (!delegation().serves(inputs))
    return delegate<&Backend::allgather_into_tensor_coalesced>(operation, inputs, outputs, inputs, options);
  return gatherStacked(operation, outputs, inputs, options);
}

// End to end in an output, or all on the same memory.
Fallback::WorkPtr FairringBackend::gatherStacked(const Operation& operation, const Tensors& outputs,
                                                 const Tensors& inputs, const c10d::AllgatherOptions& options) {
  requireCount(operation.verb, "outputs", outputs.size(), inputs.size());
  delegation().requireDense(operation.verb, outputs);
  delegation().requireDense(operation.verb, inputs);
  requireSameDTypes(operation.verb, outputs, inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    requireElements(operation.verb, outputs[i].numel(), inputs[i].numel() * getSize());
  HostCall call = gatherCall(operation, outputs, {outputs}, options);
  call.read = inputs;
  standInRows(call, outputs, inputs);
  return runOnHost(std::move(call));
}

void FairringBackend::standInRows(HostCall& call, const Tensors& outputs, const Tensors& inputs) const {
  for (const at::Tensor& input : inputs) {
    for (std::vector<Block>& blocks : call.blocks) blocks.push_back(bytesBlock(input));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    orRefused(call, i, [&] {
      std::byte* to = call.memory.write(outputs[i]);
      for (std::vector<Block>& blocks : call.blocks) {
        blocks[i].to = to;
        to += blocks[i].elements;
      }
      readFrom(call, i, inputs[i]);
    });
  }
}

Fallback::WorkPtr FairringBackend::gatherRows(const Operation& operation, const TensorLists& rows,
                                              const Tensors& inputs, HostCall call) {
  call.read = inputs;
  delegation().requireDense(operation.verb, inputs);
  requireCount(operation.verb, "outputs, one for each rank", rows.size(), static_cast<std::size_t>(getSize()));
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    delegation().requireDense(operation.verb, rows[rank]);
    requireCount(operation.verb, "tensors from each rank", rows[rank].size(), inputs.size());
    requireSameDTypes(operation.verb, rows[rank], inputs);
    for (const at::Tensor& output : rows[rank]) call.blocks[rank].push_back(bytesBlock(output));
  }
  const Tensors& mine = rows[static_cast<std::size_t>(getRank())];
  for (std::size_t i = 0; i < inputs.size(); ++i) requireElements(operation.verb, mine[i].numel(), inputs[i].numel());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    orRefused(call, i, [&] {
      for (std::size_t rank = 0; rank < rows.size(); ++rank) call.blocks[rank][i].to = call.memory.write(rows[rank][i]);
      readFrom(call, i, inputs[i]);
    });
  }
  return runOnHost(std::move(call));
}

FairringBackend::HostCall FairringBackend::gatherCall(const Operation& operation, const Tensors& common,
                                                      TensorLists outputs,
                                                      const c10d::AllgatherOptions& options) const {
  return {{.pattern = Pattern::AllGather,
           .blocks = BlockRows(static_cast<std::size_t>(getSize())),
           .timeout = limitOf(options.timeout)},
          operation,
          {.tensors = common},
          !options.asyncOp,
          std::move(outputs)};
}

}  // namespace fairring
