#include "backend/fairring_backend.h"

#include <pthread.h>

#include <algorithm>
#include <ranges>
#include <tuple>
#include <utility>

#include "backend/delegation.h"
#include "backend/gil.h"

namespace fairring {
namespace {

// The groups of this process that endAll() has to end. Weak: torch owns them. A leaf: nothing waits while it is held.
std::mutex liveMutex;
std::vector<c10::weak_intrusive_ptr<FairringBackend>> live;

// Ending a group waits for threads, and a forked child has none but its own. So there the groups, their stock backends
// included, get an owner who never lets go.
void keepForEver() {
  for (const auto& group : live) std::ignore = group.lock().release();
  live.clear();
}

void prepareForForks() {
  static const int done = ::pthread_atfork([] { liveMutex.lock(); }, [] { liveMutex.unlock(); },
                                           [] {
                                             keepForEver();
                                             liveMutex.unlock();
                                           });
  check(done == 0, ErrorKind::System, "pthread_atfork: no memory");
}

using WorkRef = c10::intrusive_ptr<FairringWork>;

std::string titleOf(const std::vector<at::Tensor>& tensors) {
  const auto describe = [](const at::Tensor& tensor) {
    return concat(tensor.numel(), " ", name(ownDType(tensor.scalar_type())));
  };
  if (tensors.size() == 1) return concat("all_reduce of ", describe(tensors.front()));
  return concat("all_reduce of ", tensors.size(), " tensors, the first of ", describe(tensors.front()));
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> FairringBackend::make(const c10::intrusive_ptr<c10d::Store>& store,
                                                        MembershipOptions options, std::chrono::milliseconds timeout,
                                                        MakeStock makeStock) {
  const int rank = options.rank;
  const int size = options.size;
  prepareForForks();
  std::shared_ptr<Membership> membership;
  if (size > 1) membership = std::make_shared<Membership>(store, std::move(options));
  auto backend = c10::make_intrusive<FairringBackend>(std::move(membership), rank, size, timeout, std::move(makeStock));
  const std::lock_guard lock(liveMutex);
  std::erase_if(live, [](const auto& group) { return group.expired(); });
  live.emplace_back(backend);
  return backend;
}

void FairringBackend::endAll() {
  std::vector<c10::weak_intrusive_ptr<FairringBackend>> groups;
  {
    const std::lock_guard lock(liveMutex);
    groups.swap(live);
  }
  for (const auto& group : std::views::reverse(groups)) {
    if (const auto backend = group.lock()) backend->shutdown();
  }
}

FairringBackend::FairringBackend(std::shared_ptr<Membership> membership, int rank, int size,
                                 std::chrono::milliseconds timeout, MakeStock makeStock)
    : Fallback(rank, size, timeout, std::move(makeStock)), membership_(std::move(membership)) {}

FairringBackend::~FairringBackend() {
  const GilReleased withoutLock;
  membership_.reset();
}

c10::intrusive_ptr<c10d::Backend::Options> FairringBackend::getBackendOptions() {
  auto options = c10::make_intrusive<Options>(getBackendName(), timeout());
  options->group_name = getGroupUid();
  options->group_desc = getGroupDesc();
  return options;
}

std::shared_ptr<Membership> FairringBackend::membership() const {
  const std::lock_guard lock(mutex_);
  return membership_;
}

bool FairringBackend::isOurs(const Tensors& tensors, const c10d::ReduceOp& op) const {
  return !tensors.empty() && std::ranges::all_of(tensors, [&](const at::Tensor& tensor) {
    return serverOfAllReduce(op, tensor.scalar_type(), tensor.device().type(), tensor.layout()) == Server::Fairring;
  });
}

Fallback::WorkPtr FairringBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const bool ours = tensors.size() == 1 && isOurs(tensors, options.reduceOp);
  return ours ? reduceAll(tensors, options) : Fallback::allreduce(tensors, options);
}

Fallback::WorkPtr FairringBackend::allreduce_coalesced(Tensors& tensors,
                                                       const c10d::AllreduceCoalescedOptions& options) {
  const bool ours = isOurs(tensors, options.reduceOp);
  return ours ? reduceAll(tensors, options) : Fallback::allreduce_coalesced(tensors, options);
}

Reduction FairringBackend::reductionOf(at::ScalarType dtype, const c10d::ReduceOp& op) const {
  Reduction reduction{.dtype = ownDType(dtype)};
  if (op != c10d::ReduceOp::AVG) return reduction;
  if (reduction.dtype == DType::Int64) {
    reduction.divisor = getSize();
  } else {
    reduction.scale = 1.0 / getSize();
  }
  return reduction;
}

std::int64_t FairringBackend::meet() {
  const std::shared_ptr<Membership> membership = this->membership();
  try {
    return membership ? membership->generation(timeout()) : 0;
  } catch (const Failure& failure) {
    std::rethrow_exception(toException(failure.error()));
  }
}

Fallback::WorkPtr FairringBackend::reduceAll(const Tensors& tensors, const c10d::AllreduceOptions& options) {
  const GilReleased withoutLock;
  refuseIfEnded();
  const std::string title = titleOf(tensors);
  const auto work = c10::make_intrusive<FairringWork>(WorkLabel{getRank(), countCall(), title}, tensors);
  const std::shared_ptr<Membership> membership = this->membership();
  if (!membership) {  // one rank: its tensors are the sum
    work->completeAlone();
    return work;
  }
  const std::chrono::milliseconds limit = options.timeout == c10d::kUnsetTimeout ? timeout() : options.timeout;
  try {
    Group& group = membership->group(limit);
    Completion& completion = membership->completion();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor& buffer = work->buffer(i);
      Call call;
      call.data = buffer.data_ptr();
      call.elements = static_cast<std::uint64_t>(buffer.numel());
      call.reduction = reductionOf(buffer.scalar_type(), options.reduceOp);
      call.timeout = limit;
      call.signature.text = title;
      call.done = [work = WorkRef(work), &completion](const Error& error) mutable {
        FairringWork::onDone(std::move(work), error, completion);
      };
      group.submit(std::move(call));
    }
  } catch (const Failure& failure) {
    std::rethrow_exception(toException(failure.error()));
  }
  return work;
}

c10d::ErrorType FairringBackend::getError() {
  if (isForked()) return c10d::ErrorType::COMM_ERROR;
  const std::shared_ptr<Membership> membership = this->membership();
  const Error error = membership ? membership->error() : Error();
  if (!error) return c10d::ErrorType::SUCCESS;
  switch (error.kind()) {
    case ErrorKind::Timeout: return c10d::ErrorType::TIMEOUT;
    case ErrorKind::PeerDied:
    case ErrorKind::PeerLeft: return c10d::ErrorType::REMOTE_ERROR;
    default: return c10d::ErrorType::COMM_ERROR;
  }
}

void FairringBackend::abort() {
  if (isForked()) return;
  const GilReleased withoutLock;
  if (const std::shared_ptr<Membership> membership = this->membership()) {
    membership->abort(makeError(ErrorKind::Aborted, "rank ", getRank(), " aborted its process group ", getGroupUid(),
                                ": its calls ended where they were"));
  }
  Fallback::abort();
}

void FairringBackend::shutdown() {
  if (isForked()) return;
  const GilReleased withoutLock;
  Fallback::shutdown();
  std::shared_ptr<Membership> ending;
  const std::lock_guard lock(mutex_);
  ending.swap(membership_);
}

}  // namespace fairring
