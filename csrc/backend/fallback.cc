#include "backend/fallback.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "backend/cuda_device.h"
#include "backend/gil.h"
#include "backend/nccl_work.h"
#include "backend/tracked_work.h"
#include "base/error.h"

namespace fairring {

namespace {

// As getpid(), which is a system call: a hundredth of the time of a small call.
pid_t thisProcess() {
  static std::atomic<pid_t> process = ::getpid();
  static const int done = ::pthread_atfork(nullptr, nullptr, [] { process = ::getpid(); });
  check(done == 0, ErrorKind::System, "pthread_atfork: no memory");
  return process;
}

// The device that a barrier names. As in nccl2, NCCL that is there already serves it on its own.
StockNccl::Use useOf(const c10d::BarrierOptions& options) {
  StockNccl::Use use{.isOnDevice = false};
  if (options.device && options.device->has_index()) use.device = options.device;
  if (!options.device_ids.empty()) {
    use.device = c10::Device(at::kCUDA, static_cast<c10::DeviceIndex>(options.device_ids.front()));
  }
  return use;
}

// One that only two ranks make.
bool isMessage(const Operation& operation) {
  return operation.type == c10d::OpType::SEND || operation.type == c10d::OpType::RECV;
}

}  // namespace

void Fallback::Parts::breakOff(Completion& completion, bool endsProcess) const {
  if (meeting) meeting->breakOff();
  // Begun in this order; but a slow hook (the flight recorder writes a file) holds up nothing else.
  completion.post([hooks = hooks] { hooks->aborting(); });
  if (!endsProcess) completion.post([nccl = nccl] { orLogged(kEndOfNccl, [&] { nccl->breakOff(); }); });
}

Fallback::Fallback(int rank, int size, std::chrono::milliseconds timeout, Parts parts, bool standsForGloo,
                   const Delegation& delegation)
    : Backend(rank, size),
      maker_(thisProcess()),
      meeting_(std::move(parts.meeting)),
      hooks_(std::move(parts.hooks)),
      stock_(std::move(parts.nccl)),
      standsForGloo_(standsForGloo),
      delegation_(delegation),
      timeout_(timeout) {}

std::shared_ptr<StockNccl> Fallback::stock() const {
  const std::lock_guard lock(stockMutex_);
  return stock_;
}

std::shared_ptr<StockNccl> Fallback::exchangeStock(std::shared_ptr<StockNccl> next) {
  const std::lock_guard lock(stockMutex_);
  return std::exchange(stock_, std::move(next));
}

bool Fallback::isForked() const { return thisProcess() != maker_; }

void Fallback::refuseIfEnded() const {
  // First: in a forked child the mutex may be held by a thread that is not there.
  TORCH_CHECK_WITH(DistBackendError, !isForked(), "rank ", getRank(), ": this process group was made by process ",
                   maker_, ", which this one was forked from; its groups can't be used here: make a group of its own");
  TORCH_CHECK_WITH(DistBackendError, !hasEnded_, "rank ", getRank(),
                   ": this process group has ended; make a new one with init_process_group() or new_group()");
}

void Fallback::refuseUnlessUsable() const {
  refuseIfEnded();
  TORCH_CHECK_WITH(
      DistBackendError, isConfigured_, "rank ", getRank(), ": this process group was made with ",
      "enable_reconfigure=True and has no members now: it has yet to be reconfigured, or was aborted since; ",
      "give it members by reconfigure()");
}

void Fallback::refuseIfFailed() const {
  refuseUnlessUsable();
  if (const Error error = firstError()) std::rethrow_exception(toException(error));
}

Fallback::WorkPtr Fallback::delegate(const Operation& operation, const Tensors& tensors, const Tensors& touched,
                                     const Begin& begin) {
  TORCH_CHECK_WITH(ValueError, !tensors.empty(), "rank ", getRank(), ": ", operation.verb, " without tensors");
  const at::Tensor& first = tensors.front();
  TORCH_CHECK_WITH(ValueError, first.is_cuda() && delegation_.hasStock(), operation.verb, " is not defined for ",
                   tensors.size(), " tensor(s) of layout ", first.layout(), " on ", first.device(),
                   ": Fairring serves dense tensors, and NCCL, if the group has it, all those of CUDA devices");
  return delegate({.device = first.device(), .isMessage = isMessage(operation) && !coalescing_.isOpen()},
                  [&](const BackendPtr& stock) { return beginInOrder(stock, first.device(), touched, begin); });
}

Fallback::WorkPtr Fallback::delegate(const StockNccl::Use& use,
                                     const std::function<WorkPtr(const BackendPtr&)>& begin) {
  const GilReleased withoutLock;
  refuseUnlessUsable();
  countCall();
  const auto stock = this->stock();
  const auto beginning = stock->beginning();
  const BackendPtr there = nccl(*stock, use);
  coalescing_.add(there);
  return begin(there);
}

// NCCL begins behind the caller's stream. A graph that this stream captures can't wait for anything outside. A
// message in a block of coalesced calls has no Work of its own: the older NCCL returns none, and nccl2 one that is
// over, so no later call begins behind it.
Fallback::WorkPtr Fallback::beginInOrder(const BackendPtr& stock, const c10::Device& device, const Tensors& touched,
                                         const Begin& begin) {
  MemoryInFlight::Ranges memory = MemoryInFlight::of(touched);
  if (memory.empty()) return NcclWork::of(stock, begin(*stock));
  const c10::Stream callers = callersStream(device);
  if (isCapturing(callers)) return NcclWork::of(stock, begin(*stock));
  inFlight_.holdBack(callers, memory, MemoryInFlight::Whose::Fairrings);
  WorkPtr work = begin(*stock);
  if (!work) return nullptr;
  const auto call = std::make_shared<DelegatedCall>(stock, work, touched);
  inFlight_.add(std::move(memory), call);
  return NcclWork::of(stock, std::move(work), call);
}

Fallback::WorkPtr Fallback::delegateBarrier(const c10d::BarrierOptions& options) {
  return delegate(useOf(options),
                  [&](const BackendPtr& stock) { return NcclWork::of(stock, stock->barrier(options)); });
}

void Fallback::startCoalescing() {
  const GilReleased withoutLock;
  const auto stock = this->stock();
  const auto beginning = stock->beginning();
  forgetBroken(*stock);
  coalescing_.start();
}

Fallback::WorkPtr Fallback::endCoalescing() {
  const GilReleased withoutLock;
  const auto stock = this->stock();
  const auto beginning = stock->beginning();
  const bool isBroken = forgetBroken(*stock);
  WorkPtr work = coalescing_.end();
  if (!isBroken) return work;
  refuseIfFailed();
  TORCH_CHECK_WITH(DistBackendError, false, "rank ", getRank(),
                   ": this process group was aborted amid coalesced calls");
}

// nccl2 launches a block's calls at its end, on a communicator that may be freed by then. The older NCCL has opened a
// group of NCCL's in this thread, which is to be closed in any case.
bool Fallback::forgetBroken(const StockNccl& stock) {
  return coalescing_.forget(
      [&](const BackendPtr& one) { return one->getBackendName() != "nccl" && !stock.serves(*one); });
}

std::chrono::milliseconds Fallback::limitOf(std::chrono::milliseconds callsOwn) const {
  return callsOwn == c10d::kUnsetTimeout ? timeout() : callsOwn;
}

WorkLabel Fallback::labelOf(const Signature& signature) const {
  return {getRank(), calls_.load(), signature.text, hooks_, standsForGloo_};
}

void Fallback::setTimeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  for (const BackendPtr& backend : stock()->made()) backend->setTimeout(timeout);
}

// torch asks only by the index; the CPU's is -1, or 0 if the user wrote it.
bool Fallback::supportsTensorAlloc(c10::DeviceIndex device) {
  const bool there = delegation_.hasStock() && device >= 0 && c10::impl::hasDeviceGuardImpl(at::kCUDA) &&
                     device < c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount();
  return there && nccl(*stock(), {.device = c10::Device(at::kCUDA, device)})->supportsTensorAlloc(device);
}

at::Tensor Fallback::allocateTensor(long size, at::TensorOptions options) {
  const bool onCuda = delegation_.hasStock() && options.device().is_cuda();
  return onCuda ? nccl(*stock(), {.device = options.device()})->allocateTensor(size, options)
                : at::empty({size}, options);
}

std::shared_ptr<c10::Allocator> Fallback::getMemAllocator() {
  return delegation_.hasStock() ? nccl(*stock(), {})->getMemAllocator() : Backend::getMemAllocator();
}

Fallback::BackendPtr Fallback::nccl(StockNccl& stock, StockNccl::Use use) {
  const GilReleased withoutLock;
  refuseIfFailed();
  if (!use.device) use.device = getBoundDeviceId();
  return stock.get(
      use, [this] { return meet(); },
      [this](c10d::Backend& backend) {
        backend.setGroupUid(getGroupUid());
        backend.setGroupDesc(getGroupDesc());
        backend.setTimeout(timeout());  // it is made with the group's first
        if (getBoundDeviceId()) backend.setBoundDeviceId(getBoundDeviceId());
#ifdef FAIRRING_TORCH_2_15
        // Its Works are over when it says so. A Work that outlives the group keeps none of its listeners, which may be
        // Python's.
        if (!backend.supportsCompletionHooks()) return;
        backend.registerCompletionHook(0, [weak = std::weak_ptr(hooks_)](const CompletionHookArgs& args) {
          if (const auto hooks = weak.lock()) hooks->completed(args.completionKey);
        });
#endif
      });
}

#ifdef FAIRRING_TORCH_2_15
void Fallback::registerAbortHook(std::int64_t id, AbortHook hook) { hooks_->onAbort(id, std::move(hook)); }

void Fallback::unregisterAbortHook(std::int64_t id) { hooks_->forgetAbort(id); }

void Fallback::registerCompletionHook(std::int64_t id, CompletionHook hook) {
  hooks_->onCompletion(id, std::move(hook));
}

void Fallback::unregisterCompletionHook(std::int64_t id) { hooks_->forgetCompletion(id); }
#endif

void Fallback::abort() { stock()->breakOff(); }

void Fallback::shutdown() {
  const GilReleased withoutLock;
  meeting_->end();
  hasEnded_ = true;
  inFlight_.use(false);
  stock()->end();
}

}  // namespace fairring
