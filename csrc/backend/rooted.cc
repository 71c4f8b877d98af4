// FairringBackend's collectives that have a root: broadcast, reduce, gather, scatter. Ranks that have nothing to read,
// or nothing to write, have null pointers in their blocks.
#include <utility>

#include "backend/delegation.h"
#include "backend/fairring_backend.h"
#include "backend/tensor_checks.h"

namespace fairring {
namespace {

namespace op = operation;

}  // namespace

FairringBackend::HostCall FairringBackend::rootedCall(const Operation& operation, Pattern pattern, std::int64_t root,
                                                      const Tensors& common, std::chrono::milliseconds timeout,
                                                      bool async) const {
  delegation().requireDense(operation.verb, common);
  requireCount(operation.verb, "tensor", common.size(), 1);
  TORCH_CHECK_WITH(ValueError, root >= 0 && root < getSize(), operation.verb, ": the root is rank ", root,
                   ", but the group has ranks 0 to ", getSize() - 1);
  return {{.pattern = pattern,
           .root = static_cast<int>(root),
           .blocks = BlockRows(isByRank(pattern) ? static_cast<std::size_t>(getSize()) : 1),
           .timeout = limitOf(timeout)},
          operation,
          {.tensors = common, .root = root},
          !async};
}

Fallback::WorkPtr FairringBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  if (!delegation().serves(tensors)) return delegate<&Backend::broadcast>(op::kBroadcast, tensors, tensors, options);
  HostCall call =
      rootedCall(op::kBroadcast, Pattern::Broadcast, options.rootRank, tensors, options.timeout, options.asyncOp);
  call.read = tensors;
  call.outputs = {tensors};
  Block& block = call.blocks.front().emplace_back(bytesBlock(tensors.front()));
  orRefused(call, 0, [&] {
    if (call.root == getRank()) {
      block.from = call.memory.read(tensors.front());
    } else {
      block.to = call.memory.write(tensors.front());
    }
  });
  return runOnHost(std::move(call));
}

Fallback::WorkPtr FairringBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  delegation().refuseSparse(op::kReduce.verb, tensors);
  if (!delegation().reduces(tensors)) return delegate<&Backend::reduce>(op::kReduce, tensors, tensors, options);
  HostCall call = rootedCall(op::kReduce, Pattern::Reduce, options.rootRank, tensors, options.timeout, options.asyncOp);
  call.common.reduction = options.reduceOp;
  call.read = tensors;
  call.outputs = {tensors};
  const at::Tensor& tensor = tensors.front();
  const Contribution contribution = contributionTo(op::kReduce, options.reduceOp, tensor);
  call.scale = contribution.scale;
  Block& block = call.blocks.front().emplace_back();
  block = {.elements = ownElements(tensor), .reduction = contribution.reduction};
  orRefused(call, 0, [&] {
    if (call.root == getRank()) block.to = call.memory.write(tensor);
    block.from = call.memory.read(tensor);
  });
  return runOnHost(std::move(call));
}

Fallback::WorkPtr FairringBackend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  if (!delegation().serves(inputs)) return delegate<&Backend::gather>(op::kGather, inputs, outputs, inputs, options);
  HostCall call = rootedCall(op::kGather, Pattern::Gather, options.rootRank, inputs, options.timeout, options.asyncOp);
  const bool isRoot = call.root == getRank();
  requireCount(op::kGather.verb, "list of outputs", outputs.size(), isRoot ? 1 : 0);
  call.read = inputs;
  call.outputs = outputs;
  if (isRoot) {
    const Tensors& parts = outputs.front();
    requireCount(op::kGather.verb, "outputs, one for each rank", parts.size(), call.blocks.size());
    delegation().requireDense(op::kGather.verb, parts);
    for (const at::Tensor& part : parts) {
      requireSameDTypes(op::kGather.verb, {part}, inputs);
      requireElements(op::kGather.verb, part.numel(), inputs.front().numel());
    }
  }
  for (std::vector<Block>& blocks : call.blocks) blocks.push_back(bytesBlock(inputs.front()));
  orRefused(call, 0, [&] {
    for (std::size_t rank = 0; isRoot && rank < call.blocks.size(); ++rank)
      call.blocks[rank].front().to = call.memory.write(outputs.front()[rank]);
    readFrom(call, 0, inputs.front());
  });
  return runOnHost(std::move(call));
}

#ifdef C10D_BACKEND_HAS_HOOKS
Fallback::WorkPtr FairringBackend::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                                      const c10d::GatherOptions& options) {
  if (!delegation().serves(input))
    return delegate<&Backend::gather_into_tensor>(op::kGatherIntoTensor, {input}, output, input, options);
  const Operation& operation = op::kGatherIntoTensor;
  HostCall call = rootedCall(operation, Pattern::Gather, options.rootRank, {input}, options.timeout, options.asyncOp);
  const bool isRoot = call.root == getRank();
  call.read = {&input, 1};
  call.outputs = {isRoot ? Tensors{output} : Tensors()};
  if (isRoot) {
    delegation().requireDense(operation.verb, {output});
    requireSameDTypes(operation.verb, {output}, {input});
    requireElements(operation.verb, output.numel(), input.numel() * getSize());
  }
  for (std::vector<Block>& blocks : call.blocks) blocks.push_back(bytesBlock(input));
  orRefused(call, 0, [&] {
    std::byte* to = isRoot ? call.memory.write(output) : nullptr;
    for (std::size_t rank = 0; isRoot && rank < call.blocks.size(); ++rank, to += input.nbytes())
      call.blocks[rank].front().to = to;
    readFrom(call, 0, input);
  });
  return runOnHost(std::move(call));
}
#endif

Fallback::WorkPtr FairringBackend::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) {
  if (!delegation().serves(outputs))
    return delegate<&Backend::scatter>(op::kScatter, outputs, outputs, inputs, options);
  HostCall call =
      rootedCall(op::kScatter, Pattern::Scatter, options.rootRank, outputs, options.timeout, options.asyncOp);
  const bool isRoot = call.root == getRank();
  requireCount(op::kScatter.verb, "list of inputs", inputs.size(), isRoot ? 1 : 0);
  call.outputs = {outputs};
  if (isRoot) {
    const Tensors& parts = inputs.front();
    call.read = parts;
    requireCount(op::kScatter.verb, "inputs, one for each rank", parts.size(), call.blocks.size());
    delegation().requireDense(op::kScatter.verb, parts);
    for (const at::Tensor& part : parts) {
      requireSameDTypes(op::kScatter.verb, outputs, {part});
      requireElements(op::kScatter.verb, outputs.front().numel(), part.numel());
    }
  }
  for (std::vector<Block>& blocks : call.blocks) blocks.push_back(bytesBlock(outputs.front()));
  orRefused(call, 0, [&] {
    call.blocks[static_cast<std::size_t>(getRank())].front().to = call.memory.write(outputs.front());
    for (std::size_t rank = 0; isRoot && rank < call.blocks.size(); ++rank)
      call.blocks[rank].front().from = call.memory.read(inputs.front()[rank]);
  });
  return runOnHost(std::move(call));
}

}  // namespace fairring
