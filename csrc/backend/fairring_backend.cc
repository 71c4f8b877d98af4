#include "backend/fairring_backend.h"

#include <pthread.h>

#include <ranges>
#include <tuple>
#include <utility>

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

}  // namespace

c10::intrusive_ptr<c10d::Backend> FairringBackend::make(const c10::intrusive_ptr<c10d::Store>& store,
                                                        MembershipOptions options, std::chrono::milliseconds timeout,
                                                        StockBackends::Make makeStock) {
  const int rank = options.rank;
  const int size = options.size;
  prepareForForks();
  Parts parts{std::make_shared<GroupLink>(), std::make_shared<StockBackends>(store, std::move(makeStock)),
              std::make_shared<Hooks>()};
  std::shared_ptr<Membership> membership;
  if (size > 1) {
    membership = std::make_shared<Membership>(store, std::move(options), [parts] {
      parts.link->groupFailed();
      // Begun in this order; but a hook that takes long (the flight recorder writes a file) holds nobody up.
      parts.link->post([hooks = parts.hooks] { hooks->aborting(); });
      parts.link->post([stocks = parts.stocks] { stocks->breakOff(); });
    });
    parts.link->connect(*membership);
  }
  auto backend = c10::make_intrusive<FairringBackend>(std::move(membership), rank, size, timeout, std::move(parts));
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
                                 std::chrono::milliseconds timeout, Parts parts)
    : Fallback(rank, size, timeout, std::move(parts)), membership_(std::move(membership)) {}

FairringBackend::~FairringBackend() {
  const GilReleased withoutLock;
  Fallback::shutdown();
  link()->close();
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

std::int64_t FairringBackend::meet() {
  const std::shared_ptr<Membership> membership = this->membership();
  try {
    return membership ? membership->generation(timeout()) : 0;
  } catch (const Failure& failure) {
    std::rethrow_exception(toException(failure.error()));
  }
}

void FairringBackend::openEngine(std::chrono::milliseconds timeout) {
  const std::shared_ptr<Membership> membership = this->membership();
  try {
    if (membership) membership->group(timeout);
  } catch (const Failure& failure) {
    std::rethrow_exception(toException(failure.error()));
  }
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
  link()->close();
  const std::lock_guard lock(mutex_);
  ending.swap(membership_);
}

}  // namespace fairring
