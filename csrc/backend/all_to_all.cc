// FairringBackend's all-to-alls: the data that each rank has for each other one, and the places of arriving data.
#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <utility>

#include "backend/delegation.h"
#include "backend/fairring_backend.h"
#include "backend/tensor_checks.h"

namespace fairring {
namespace {

namespace op = operation;

// Translates rows of the first dimension to bytes; no sizes: equal ones.
std::vector<std::uint64_t> splitInBytes(const std::vector<std::int64_t>& rows, const at::Tensor& tensor, int ranks) {
  c10d::checkSplitSizes(rows, tensor, ranks);
  const std::int64_t all = tensor.size(0);
  const std::uint64_t rowBytes = all == 0 ? 0 : tensor.nbytes() / static_cast<std::uint64_t>(all);
  std::vector<std::uint64_t> bytes;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t count = rows.empty() ? all / ranks : rows[static_cast<std::size_t>(rank)];
    bytes.push_back(static_cast<std::uint64_t>(count) * rowBytes);
  }
  return bytes;
}

}  // namespace

Fallback::WorkPtr FairringBackend::alltoall_base(at::Tensor& output, at::Tensor& input, Sizes& outputSizes,
                                                 Sizes& inputSizes, const c10d::AllToAllOptions& options) {
  if (!delegation().serves(Tensors{output, input})) {
    return delegate<&Backend::alltoall_base>(op::kAllToAllSingle, {input}, output, input, outputSizes, inputSizes,
                                             options);
  }
  const char* verb = op::kAllToAllSingle.verb;
  delegation().requireDense(verb, {output, input});
  requireSameDTypes(verb, {output}, {input});
  const std::vector<std::uint64_t> toBytes = splitInBytes(outputSizes, output, getSize());
  const std::vector<std::uint64_t> fromBytes = splitInBytes(inputSizes, input, getSize());
  HostCall call = exchangeCall(op::kAllToAllSingle, {input}, {output}, options);
  call.read = {&input, 1};
  for (std::size_t rank = 0; rank < call.cells.size(); ++rank)
    call.cells[rank] = {.fromBytes = fromBytes[rank], .toBytes = toBytes[rank]};
  orRefused(call, 0, [&] {
    std::byte* to = call.memory.write(output);
    const std::byte* from = call.memory.read(input);
    for (CellPair& pair : call.cells) {
      pair.from = std::exchange(from, from + pair.fromBytes);
      pair.to = std::exchange(to, to + pair.toBytes);
    }
  });
  return runExchange(std::move(call));
}

Fallback::WorkPtr FairringBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  if (!delegation().serves(inputs) || !delegation().serves(outputs))
    return delegate<&Backend::alltoall>(op::kAllToAll, inputs, outputs, inputs, options);
  const char* verb = op::kAllToAll.verb;
  delegation().requireDense(verb, outputs);
  delegation().requireDense(verb, inputs);
  requireCount(verb, "outputs", outputs.size(), static_cast<std::size_t>(getSize()));
  requireCount(verb, "inputs", inputs.size(), static_cast<std::size_t>(getSize()));
  requireSameDTypes(verb, outputs, inputs);
  HostCall call = exchangeCall(op::kAllToAll, inputs, outputs, options);
  call.read = inputs;
  for (std::size_t rank = 0; rank < call.cells.size(); ++rank)
    call.cells[rank] = {.fromBytes = inputs[rank].nbytes(), .toBytes = outputs[rank].nbytes()};
  for (std::size_t rank = 0; rank < call.cells.size(); ++rank) {
    orRefused(call, rank, [&] {
      call.cells[rank].to = call.memory.write(outputs[rank]);
      call.cells[rank].from = call.memory.read(inputs[rank]);
    });
  }
  return runExchange(std::move(call));
}

FairringBackend::HostCall FairringBackend::exchangeCall(const Operation& operation, const Tensors& inputs,
                                                        const Tensors& outputs,
                                                        const c10d::AllToAllOptions& options) const {
  return {{.pattern = Pattern::AllToAll, .timeout = limitOf(options.timeout)},
          operation,
          {.tensors = inputs, .dtypesOnly = true},
          !options.asyncOp,
          {outputs},
          std::vector<CellPair>(static_cast<std::size_t>(getSize()))};
}

Fallback::WorkPtr FairringBackend::runExchange(HostCall call) {
  const CellPair& own = call.cells[static_cast<std::size_t>(getRank())];
  TORCH_CHECK_WITH(ValueError, own.toBytes == own.fromBytes, "rank ", getRank(), " has ", own.fromBytes,
                   " B for itself and room for ", own.toBytes, " B of its own: they must be the same");
  return runOnHost(std::move(call));
}

}  // namespace fairring
