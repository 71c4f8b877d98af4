#include "backend/fallback.h"

#include <unistd.h>

#include <utility>

#include "backend/gil.h"

namespace fairring {

Fallback::Fallback(int rank, int size, std::chrono::milliseconds timeout, MakeStock makeStock)
    : Backend(rank, size),
      maker_(::getpid()),
      timeout_(timeout),
      makeStock_(std::make_shared<const MakeStock>(std::move(makeStock))) {}

bool Fallback::isForked() const { return ::getpid() != maker_; }

void Fallback::refuseIfEnded() const {
  // First: in a forked child the mutex may be held by a thread that is not there.
  TORCH_CHECK_WITH(DistBackendError, !isForked(), "rank ", getRank(), ": this process group was made by process ",
                   maker_, ", which this one was forked from; its groups can't be used here: make a group of its own");
  const std::lock_guard lock(mutex_);
  TORCH_CHECK_WITH(DistBackendError, makeStock_, "rank ", getRank(),
                   ": this process group has ended; make a new one with init_process_group() or new_group()");
}

Fallback::BackendPtr Fallback::stock(c10::DeviceType device) {
  const GilReleased withoutLock;
  refuseIfEnded();
  const std::lock_guard making(making_);
  refuseIfEnded();
  std::shared_ptr<const MakeStock> makeStock;
  {
    const std::lock_guard lock(mutex_);
    const auto found = stock_.find(device);
    if (found != stock_.end()) return found->second;
    makeStock = makeStock_;
  }
  BackendPtr backend = (*makeStock)(c10::DeviceTypeName(device, /*lower_case=*/true), meet());
  backend->setGroupUid(getGroupUid());
  backend->setGroupDesc(getGroupDesc());
  if (getBoundDeviceId()) backend->setBoundDeviceId(getBoundDeviceId());
  {
    const std::lock_guard lock(mutex_);
    if (makeStock_) stock_[device] = backend;
  }
  refuseIfEnded();
  return backend;
}

Fallback::BackendPtr Fallback::collective(const at::Tensor& tensor) {
  countCall();
  return stock(tensor.device().type());
}

Fallback::BackendPtr Fallback::collective(const Tensors& tensors) {
  TORCH_CHECK_WITH(ValueError, !tensors.empty(), "rank ", getRank(), ": a collective without tensors");
  return collective(tensors.front());
}

Fallback::WorkPtr Fallback::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return collective(tensors)->broadcast(tensors, options);
}

Fallback::WorkPtr Fallback::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return collective(tensors)->allreduce(tensors, options);
}

Fallback::WorkPtr Fallback::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return collective(tensors)->allreduce_sparse(tensors, options);
}

Fallback::WorkPtr Fallback::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return collective(tensors)->allreduce_coalesced(tensors, options);
}

Fallback::WorkPtr Fallback::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return collective(tensors)->reduce(tensors, options);
}

Fallback::WorkPtr Fallback::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  return collective(inputs)->allgather(outputs, inputs, options);
}

Fallback::WorkPtr Fallback::_allgather_base(at::Tensor& output, at::Tensor& input,
                                            const c10d::AllgatherOptions& options) {
  return collective(input)->_allgather_base(output, input, options);
}

Fallback::WorkPtr Fallback::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                const c10d::AllgatherOptions& options) {
  return collective(inputs)->allgather_coalesced(outputs, inputs, options);
}

Fallback::WorkPtr Fallback::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                            const c10d::AllgatherOptions& options) {
  return collective(inputs)->allgather_into_tensor_coalesced(outputs, inputs, options);
}

Fallback::WorkPtr Fallback::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  return collective(inputs)->gather(outputs, inputs, options);
}

Fallback::WorkPtr Fallback::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) {
  return collective(outputs)->scatter(outputs, inputs, options);
}

Fallback::WorkPtr Fallback::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                           const c10d::ReduceScatterOptions& options) {
  return collective(outputs)->reduce_scatter(outputs, inputs, options);
}

Fallback::WorkPtr Fallback::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::ReduceScatterOptions& options) {
  return collective(input)->_reduce_scatter_base(output, input, options);
}

Fallback::WorkPtr Fallback::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                            const c10d::ReduceScatterOptions& options) {
  return collective(inputs)->reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

Fallback::WorkPtr Fallback::alltoall_base(at::Tensor& output, at::Tensor& input, Sizes& outputSizes, Sizes& inputSizes,
                                          const c10d::AllToAllOptions& options) {
  return collective(input)->alltoall_base(output, input, outputSizes, inputSizes, options);
}

Fallback::WorkPtr Fallback::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  return collective(inputs)->alltoall(outputs, inputs, options);
}

#ifdef C10D_BACKEND_HAS_HOOKS
Fallback::WorkPtr Fallback::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                               const c10d::GatherOptions& options) {
  return collective(input)->gather_into_tensor(output, input, options);
}
#endif

Fallback::WorkPtr Fallback::send(Tensors& tensors, int destination, int tag) {
  return stock(tensors.at(0).device().type())->send(tensors, destination, tag);
}

Fallback::WorkPtr Fallback::recv(Tensors& tensors, int source, int tag) {
  return stock(tensors.at(0).device().type())->recv(tensors, source, tag);
}

Fallback::WorkPtr Fallback::recvAnysource(Tensors& tensors, int tag) {
  return stock(tensors.at(0).device().type())->recvAnysource(tensors, tag);
}

Fallback::WorkPtr Fallback::barrier(const c10d::BarrierOptions& options) {
  countCall();
  return stock(options.device ? options.device->type() : at::kCPU)->barrier(options);
}

void Fallback::monitoredBarrier(const c10d::BarrierOptions& options, bool waitAllRanks) {
  countCall();
  stock(at::kCPU)->monitoredBarrier(options, waitAllRanks);
}

std::vector<Fallback::BackendPtr> Fallback::made() const {
  const std::lock_guard lock(mutex_);
  std::vector<BackendPtr> all;
  all.reserve(stock_.size());
  for (const auto& [device, backend] : stock_) all.push_back(backend);
  return all;
}

void Fallback::setTimeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  for (const auto& backend : made()) backend->setTimeout(timeout);
}

void Fallback::abort() {
  for (const auto& backend : made()) backend->abort();
}

void Fallback::shutdown() {
  const GilReleased withoutLock;
  decltype(stock_) ending;
  std::shared_ptr<const MakeStock> makeStock;
  {
    const std::lock_guard lock(mutex_);
    ending.swap(stock_);
    makeStock.swap(makeStock_);
  }
  for (const auto& [device, backend] : ending) backend->shutdown();
}

}  // namespace fairring
