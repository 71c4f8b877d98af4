// FairringBackend's reduce-scatters and all-gathers of CUDA tensors that have a block for each rank, end to end,
// with FAIRRING_CUDA=on or auto. Calls that are not in the table go to NCCL whole, as with all-reduces
// (reducing_on_device.cc).
#include <algorithm>
#include <optional>
#include <utility>

#include "backend/call_memory.h"
#include "backend/fairring_backend.h"
#include "backend/reduction.h"

namespace fairring {
namespace {

using Tensors = Fallback::Tensors;

// False for tensors that NCCL would refuse: the call then goes to NCCL, whose error says why.
bool standInBlocks(const Tensors& wholes, const Tensors& parts, int ranks) {
  if (wholes.empty() || !wholes.front().is_cuda() || wholes.size() != parts.size()) return false;
  for (std::size_t i = 0; i < wholes.size(); ++i) {
    const bool fits = wholes[i].scalar_type() == parts[i].scalar_type() &&
                      wholes[i].numel() == parts[i].numel() * ranks && wholes[i].device() == parts[i].device();
    if (!fits || !isPlain(wholes[i]) || !isPlain(parts[i])) return false;
  }
  return true;
}

}  // namespace

Fallback::WorkPtr FairringBackend::reduceScatterOnDevice(const Operation& operation, const Tensors& outputs,
                                                         const Tensors& inputs,
                                                         const c10d::ReduceScatterOptions& options) {
  if (!standInBlocks(inputs, outputs, getSize())) return nullptr;
  DeviceCall call{.operation = operation,
                  .common = {.tensors = inputs, .onDevice = true, .reduction = options.reduceOp},
                  .inputs = inputs,
                  .outputs = outputs,
                  .timeout = limitOf(options.timeout),
                  .pattern = Pattern::ReduceScatter};
  return runOnDevice(call, [&]() -> std::optional<Call> {
    const auto contributions = contributionsOnDevice(operation, options.reduceOp, inputs);
    if (!contributions) return std::nullopt;
    return Call{.pattern = Pattern::ReduceScatter,
                .blocks = rowsOnDevice(inputs, outputs, *contributions, getRank(), getSize()),
                .scale = scaleOf(*contributions),
                .signature = {},
                .done = nullptr};
  });
}

Fallback::WorkPtr FairringBackend::allGatherOnDevice(const Operation& operation, const Tensors& outputs,
                                                     const Tensors& inputs, const c10d::AllgatherOptions& options) {
  if (!standInBlocks(outputs, inputs, getSize())) return nullptr;
  DeviceCall call{.operation = operation,
                  .common = {.tensors = outputs, .onDevice = true},
                  .inputs = inputs,
                  .outputs = outputs,
                  .timeout = limitOf(options.timeout),
                  .pattern = Pattern::AllGather};
  return runOnDevice(call, [&]() -> std::optional<Call> {
    return Call{.pattern = Pattern::AllGather,
                .blocks = rowsOnDevice(outputs, inputs, {}, getRank(), getSize()),
                .signature = {},
                .done = nullptr};
  });
}

}  // namespace fairring
