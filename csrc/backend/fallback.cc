#include "backend/fallback.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <unistd.h>

#include <utility>

#include "backend/gil.h"

namespace fairring {

using c10d::Backend;
namespace op = operation;

Fallback::Fallback(int rank, int size, std::chrono::milliseconds timeout, Parts parts)
    : Backend(rank, size), maker_(::getpid()), parts_(std::move(parts)), timeout_(timeout) {}

bool Fallback::isForked() const { return ::getpid() != maker_; }

void Fallback::refuseIfEnded() const {
  // First: in a forked child the mutex may be held by a thread that is not there.
  TORCH_CHECK_WITH(DistBackendError, !isForked(), "rank ", getRank(), ": this process group was made by process ",
                   maker_, ", which this one was forked from; its groups can't be used here: make a group of its own");
  TORCH_CHECK_WITH(DistBackendError, !parts_.stocks->hasEnded(), "rank ", getRank(),
                   ": this process group has ended; make a new one with init_process_group() or new_group()");
}

Fallback::WorkPtr Fallback::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return delegate(collective(op::kBroadcast, {.tensors = tensors, .root = options.rootRank}, options.timeout), tensors,
                  [&](Backend& stock) { return stock.broadcast(tensors, options); });
}

Fallback::WorkPtr Fallback::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return delegate(collective(op::kAllReduce, {.tensors = tensors, .reduction = options.reduceOp}, options.timeout),
                  tensors, [&](Backend& stock) { return stock.allreduce(tensors, options); });
}

Fallback::WorkPtr Fallback::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return delegate(
      collective(op::kAllReduceSparse, {.tensors = tensors, .reduction = options.reduceOp}, options.timeout), tensors,
      [&](Backend& stock) { return stock.allreduce_sparse(tensors, options); });
}

Fallback::WorkPtr Fallback::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return delegate(
      collective(op::kAllReduceCoalesced, {.tensors = tensors, .reduction = options.reduceOp}, options.timeout),
      tensors, [&](Backend& stock) { return stock.allreduce_coalesced(tensors, options); });
}

Fallback::WorkPtr Fallback::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const Common common{.tensors = tensors, .root = options.rootRank, .reduction = options.reduceOp};
  return delegate(collective(op::kReduce, common, options.timeout), tensors,
                  [&](Backend& stock) { return stock.reduce(tensors, options); });
}

Fallback::WorkPtr Fallback::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  const Common common{.tensors = outputs.empty() ? inputs : outputs.front()};
  return delegate(collective(op::kAllGather, common, options.timeout), inputs,
                  [&](Backend& stock) { return stock.allgather(outputs, inputs, options); });
}

Fallback::WorkPtr Fallback::_allgather_base(at::Tensor& output, at::Tensor& input,
                                            const c10d::AllgatherOptions& options) {
  return delegate(collective(op::kAllGatherIntoTensor, {.tensors = {output}}, options.timeout), {input},
                  [&](Backend& stock) { return stock._allgather_base(output, input, options); });
}

Fallback::WorkPtr Fallback::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                const c10d::AllgatherOptions& options) {
  return delegate(collective(op::kAllGatherCoalesced, {.tensors = inputs}, options.timeout), inputs,
                  [&](Backend& stock) { return stock.allgather_coalesced(outputs, inputs, options); });
}

Fallback::WorkPtr Fallback::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                            const c10d::AllgatherOptions& options) {
  return delegate(collective(op::kAllGatherIntoTensorCoalesced, {.tensors = outputs}, options.timeout), inputs,
                  [&](Backend& stock) { return stock.allgather_into_tensor_coalesced(outputs, inputs, options); });
}

Fallback::WorkPtr Fallback::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  return delegate(collective(op::kGather, {.tensors = inputs, .root = options.rootRank}, options.timeout), inputs,
                  [&](Backend& stock) { return stock.gather(outputs, inputs, options); });
}

Fallback::WorkPtr Fallback::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) {
  return delegate(collective(op::kScatter, {.tensors = outputs, .root = options.rootRank}, options.timeout),
                  inputs.empty() ? Tensors{} : inputs.front(),
                  [&](Backend& stock) { return stock.scatter(outputs, inputs, options); });
}

Fallback::WorkPtr Fallback::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                           const c10d::ReduceScatterOptions& options) {
  const Common common{.tensors = inputs.empty() ? outputs : inputs.front(), .reduction = options.reduceOp};
  return delegate(collective(op::kReduceScatter, common, options.timeout), common.tensors,
                  [&](Backend& stock) { return stock.reduce_scatter(outputs, inputs, options); });
}

Fallback::WorkPtr Fallback::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::ReduceScatterOptions& options) {
  const Common common{.tensors = {input}, .reduction = options.reduceOp};
  return delegate(collective(op::kReduceScatterTensor, common, options.timeout), common.tensors,
                  [&](Backend& stock) { return stock._reduce_scatter_base(output, input, options); });
}

Fallback::WorkPtr Fallback::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                            const c10d::ReduceScatterOptions& options) {
  const Common common{.tensors = inputs, .reduction = options.reduceOp};
  return delegate(collective(op::kReduceScatterTensorCoalesced, common, options.timeout), inputs,
                  [&](Backend& stock) { return stock.reduce_scatter_tensor_coalesced(outputs, inputs, options); });
}

Fallback::WorkPtr Fallback::alltoall_base(at::Tensor& output, at::Tensor& input, Sizes& outputSizes, Sizes& inputSizes,
                                          const c10d::AllToAllOptions& options) {
  const Common common{.tensors = {input}, .dtypesOnly = true};
  return delegate(collective(op::kAllToAllSingle, common, options.timeout), common.tensors,
                  [&](Backend& stock) { return stock.alltoall_base(output, input, outputSizes, inputSizes, options); });
}

Fallback::WorkPtr Fallback::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  return delegate(collective(op::kAllToAll, {.tensors = inputs, .dtypesOnly = true}, options.timeout), inputs,
                  [&](Backend& stock) { return stock.alltoall(outputs, inputs, options); });
}

#ifdef C10D_BACKEND_HAS_HOOKS
Fallback::WorkPtr Fallback::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                               const c10d::GatherOptions& options) {
  return delegate(collective(op::kGatherIntoTensor, {.tensors = {input}, .root = options.rootRank}, options.timeout),
                  {input}, [&](Backend& stock) { return stock.gather_into_tensor(output, input, options); });
}
#endif

Fallback::WorkPtr Fallback::send(Tensors& tensors, int destination, int tag) {
  return delegate(pointToPoint(op::kSend, tensors, destination), tensors,
                  [&](Backend& stock) { return stock.send(tensors, destination, tag); });
}

Fallback::WorkPtr Fallback::recv(Tensors& tensors, int source, int tag) {
  return delegate(pointToPoint(op::kReceive, tensors, source), tensors,
                  [&](Backend& stock) { return stock.recv(tensors, source, tag); });
}

Fallback::WorkPtr Fallback::recvAnysource(Tensors& tensors, int tag) {
  return delegate(pointToPoint(op::kReceiveAnySource, tensors, std::nullopt), tensors,
                  [&](Backend& stock) { return stock.recvAnysource(tensors, tag); });
}

Fallback::WorkPtr Fallback::barrier(const c10d::BarrierOptions& options) {
  const at::DeviceType device = options.device ? options.device->type() : at::kCPU;
  return delegate({op::kBarrier, signatureOf(op::kBarrier, {}), limitOf(options.timeout), device}, {},
                  [&](Backend& stock) { return stock.barrier(options); });
}

// Returns when it is over, as its name in torch does, so there is a Work only for its errors.
void Fallback::monitoredBarrier(const c10d::BarrierOptions& options, bool waitAllRanks) {
  const GilReleased withoutLock;
  refuseIfEnded();
  countCall();
  Delegated call{op::kMonitoredBarrier, signatureOf(op::kMonitoredBarrier, {}), limitOf(options.timeout), at::kCPU};
  const DelegatedWork::Ref work = enter(call, {});
  try {
    stock(at::kCPU)->monitoredBarrier(options, waitAllRanks);
    DelegatedWork::done(work);
  } catch (...) {
    DelegatedWork::refused(work, std::current_exception());
  }
}

void Fallback::setTimeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  for (const auto& backend : parts_.stocks->made()) backend->setTimeout(timeout);
}

// torch asks by the index alone; the CPU's is -1, or 0 where somebody wrote it.
bool Fallback::supportsTensorAlloc(c10::DeviceIndex device) {
  const bool there = device >= 0 && c10::impl::hasDeviceGuardImpl(at::kCUDA) &&
                     device < c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount();
  return there && nccl()->supportsTensorAlloc(device);
}

at::Tensor Fallback::allocateTensor(long size, at::TensorOptions options) {
  const bool onCuda = options.device().is_cuda();
  return onCuda ? nccl()->allocateTensor(size, options) : at::empty({size}, options);
}

std::shared_ptr<c10::Allocator> Fallback::getMemAllocator() { return nccl()->getMemAllocator(); }

Fallback::BackendPtr Fallback::nccl() {
  const GilReleased withoutLock;
  refuseIfEnded();
  return stock(at::kCUDA);
}

#ifdef C10D_BACKEND_HAS_HOOKS
void Fallback::registerAbortHook(std::int64_t id, AbortHook hook) { parts_.hooks->onAbort(id, std::move(hook)); }

void Fallback::unregisterAbortHook(std::int64_t id) { parts_.hooks->forgetAbort(id); }

void Fallback::registerCompletionHook(std::int64_t id, CompletionHook hook) {
  parts_.hooks->onCompletion(id, std::move(hook));
}

void Fallback::unregisterCompletionHook(std::int64_t id) { parts_.hooks->forgetCompletion(id); }
#endif

void Fallback::abort() { parts_.stocks->breakOff(); }

void Fallback::shutdown() {
  const GilReleased withoutLock;
  parts_.stocks->end();
}

}  // namespace fairring
