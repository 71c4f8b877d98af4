#include "backend/fairring_backend.h"

#include <pthread.h>

#include <algorithm>
#include <ranges>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <tuple>
#include <utility>

#include "backend/cuda_device.h"
#include "backend/gil.h"
#include "base/first_exception.h"
#include "transport/challenge.h"

namespace fairring {
namespace {

// The groups of this process that endAll() has to end. Weak: torch owns them. A leaf: nothing waits while it is held.
std::mutex liveMutex;
std::vector<c10::weak_intrusive_ptr<FairringBackend>> live;

// Ending a group waits for threads, and a forked child has only its own. So there the groups, their NCCL included, get
// an owner that never drops them.
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

// Torch restarts its count of groups after destroy_process_group, so on one store a name can come again with other
// members, some of which have sat in a generation of that name and others not. These are two groups: each has its own
// keys. A hash is used, because the ranks of a large group are too long a text for every key.
FairringBackend::StorePtr storeOfMembers(const FairringBackend::StorePtr& store, const std::vector<int>& globalRanks) {
  std::string ranks;
  for (const int rank : globalRanks) ranks += concat(rank, ",");
  return c10::make_intrusive<c10d::PrefixStore>(concat("fairring/", keyedName(Secret{}, "members", ranks)), store);
}

std::shared_ptr<Membership> living(const std::weak_ptr<Membership>& membership) {
  auto there = membership.lock();
  TORCH_CHECK_WITH(DistBackendError, there, "this process group has ended");
  return there;
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> FairringBackend::make(const StorePtr& groupStore, Origin origin,
                                                        std::chrono::milliseconds timeout) {
  prepareForForks();
  MembershipOptions options = origin.options;
  const StorePtr store = storeOfMembers(groupStore, options.globalRanks);
  const bool meets = !options.reconfigurable;
  Parts parts{std::make_shared<Meeting>(meets ? store : nullptr), stockOf(origin, timeout), std::make_shared<Hooks>()};
  // A group of one rank meets nobody, but an NCCL of its own may find the keys of an earlier one.
  std::optional<StockNccl::Met> alone;
  if (meets && options.size == 1) alone = {store->add("fairring/alone", 1), store};
  std::shared_ptr<Membership> membership;
  if (meets && options.size > 1) {
    options.limitHeartbeats(timeout);
    membership = std::make_shared<Membership>(store, std::move(options), std::bind_front(&Parts::breakOff, parts));
    const std::weak_ptr<Membership> ranks = membership;
    parts.meeting->begin([ranks, timeout] { return living(ranks)->meetInBackground(timeout); },
                         [ranks] {
                           if (const auto there = ranks.lock()) there->giveUp();
                         });
  }
  auto backend =
      c10::make_intrusive<FairringBackend>(std::move(membership), alone, std::move(origin), timeout, std::move(parts));
  remember(backend);
  return backend;
}

std::shared_ptr<StockNccl> FairringBackend::stockOf(const Origin& origin, std::chrono::milliseconds timeout) {
  if (!origin.makeNccl) return std::make_shared<StockNccl>(nullptr);
  return std::make_shared<StockNccl>(
      [make = origin.makeNccl, options = origin.options, timeout](std::int64_t generation, StorePtr store,
                                                                  StockNccl::Part part, StockNccl::Device device) {
        return (*make)(options, timeout, generation, std::move(store), part == StockNccl::Part::Older,
                       device ? device->index() : -1);
      });
}

void FairringBackend::remember(const c10::intrusive_ptr<FairringBackend>& backend) {
  const std::lock_guard lock(liveMutex);
  std::erase_if(live, [](const auto& group) { return group.expired(); });
  live.emplace_back(backend);
}

void FairringBackend::endAll(bool failed) {
  std::vector<c10::weak_intrusive_ptr<FairringBackend>> groups;
  {
    const std::lock_guard lock(liveMutex);
    groups.swap(live);
  }
  FirstException thrown;
  for (const auto& group : std::views::reverse(groups)) {
    const auto backend = group.lock();
    if (!backend) continue;
    if (failed && backend->hasCallOnDevice()) thrown.of([&] { backend->abort(); });
    thrown.of([&] { backend->shutdown(); });
  }
  thrown.rethrow();
}

std::vector<c10::intrusive_ptr<FairringBackend>> FairringBackend::liveBackends() {
  std::vector<c10::weak_intrusive_ptr<FairringBackend>> groups;
  {
    const std::lock_guard lock(liveMutex);
    groups = live;
  }
  std::vector<c10::intrusive_ptr<FairringBackend>> backends;
  for (const auto& group : groups) {
    if (auto backend = group.lock()) backends.push_back(std::move(backend));
  }
  return backends;
}

std::vector<std::shared_ptr<Membership>> FairringBackend::liveMemberships() {
  std::vector<std::shared_ptr<Membership>> memberships;
  for (const auto& backend : liveBackends()) {
    if (std::shared_ptr<Membership> membership = backend->membership()) memberships.push_back(std::move(membership));
  }
  return memberships;
}

bool FairringBackend::areCallsOnDevicesOver() {
  return std::ranges::all_of(liveBackends(), [](const auto& backend) { return backend->inFlight().isEmpty(); });
}

void FairringBackend::writeTraces(std::size_t calls, const std::string& program) {
  for (const auto& membership : liveMemberships()) membership->writeTrace(calls, program);
}

FairringBackend::FairringBackend(std::shared_ptr<Membership> membership, std::optional<StockNccl::Met> alone,
                                 Origin origin, std::chrono::milliseconds timeout, Parts parts)
    : Fallback(origin.options.rank, origin.options.size, timeout, std::move(parts), origin.options.standsForGloo,
               Delegation(origin.makeNccl != nullptr)),
      reconfigurer_(origin.options.reconfigurable ? std::make_unique<Reconfigurer>(origin.options) : nullptr),
      membership_(std::move(membership)),
      alone_(std::move(alone)),
      origin_(std::move(origin)) {
  setConfigured(!reconfigurer_);
  inFlight().use(mixesCalls());
}

// Whether calls on CUDA tensors may be Fairring's, as far as is known before the ranks have met.
bool FairringBackend::mixesCalls() const {
  return origin_.options.devices && (reconfigurer_ || getSize() > 1) && whyNoCuda().empty();
}

FairringBackend::~FairringBackend() {
  const GilReleased withoutLock;
  orLogged(kEndOfNccl, [this] { Fallback::shutdown(); });
  membership_.reset();
  if (reconfigurer_) reconfigurer_->end();
}

c10::intrusive_ptr<c10d::Backend::Options> FairringBackend::getBackendOptions() {
  auto options = c10::make_intrusive<Options>(getBackendName(), timeout());
  options->group_name = getGroupUid();
  options->group_desc = getGroupDesc();
  const std::lock_guard lock(mutex_);
  options->global_ranks_in_group = {origin_.options.globalRanks.begin(), origin_.options.globalRanks.end()};
  return options;
}

c10::intrusive_ptr<c10d::Backend> FairringBackend::split(const StorePtr& store, const std::vector<int>& ranks,
                                                         const c10::intrusive_ptr<Options>& options) {
  const GilReleased withoutLock;
  refuseUnlessUsable();
  if (std::ranges::find(ranks, getRank()) == ranks.end()) return nullptr;
  Origin origin;
  {
    const std::lock_guard lock(mutex_);
    if (lastSplit_ && lastSplit_->first == options->group_name) {
      if (auto same = lastSplit_->second.lock()) return same;
    }
    origin = origin_;
  }
  origin.options = origin.options.ofRanks(ranks, options->group_name);
  auto made = make(store, std::move(origin), options->timeout);
  const std::lock_guard lock(mutex_);
  lastSplit_.emplace(options->group_name, made);
  return made;
}

std::shared_ptr<Membership> FairringBackend::membership() const {
  const std::lock_guard lock(mutex_);
  return membership_;
}

std::shared_ptr<Group> FairringBackend::groupIfMade() const {
  const std::shared_ptr<Membership> membership = this->membership();
  return membership ? membership->groupIfMade() : nullptr;
}

bool FairringBackend::hasCallOnDevice() const {
  const std::lock_guard lock(mutex_);
  return deviceEnd_.has_value();
}

std::uint64_t FairringBackend::settled(const Membership& membership, std::chrono::milliseconds forThoseUnderWay) {
  const std::shared_ptr<Group> group = membership.groupIfMade();
  return group ? group->settle(forThoseUnderWay) : 0;
}

void FairringBackend::leaveGroup(std::chrono::milliseconds forThoseUnderWay) {
  std::shared_ptr<Membership> membership;
  std::optional<GroupId> id;
  {
    const std::lock_guard lock(mutex_);
    membership = membership_;
    id = groupId_;
  }
  if (!membership && !id) return;  // no members yet
  const std::uint64_t complete = membership ? settled(*membership, forThoseUnderWay) : calls();
  lineage_->leave(id ? *id : membership->id(), complete);
}

void FairringBackend::beginAs(const GroupId& id) {
  groupsBefore_ = lineage_->groupsLeft();
  const std::lock_guard lock(mutex_);
  groupId_ = id;
}

std::pair<std::uint64_t, std::uint64_t> FairringBackend::mark() const {
  refuseUnlessUsable();
  if (!membership()) return {groupsBefore_.load(), calls()};
  const std::shared_ptr<Group> group = groupIfMade();
  return {groupsBefore_.load(), group ? group->callsMade() : 0};
}

void FairringBackend::loseMembers() {
  setConfigured(false);
  leaveGroup(std::chrono::milliseconds(0));
  std::shared_ptr<Membership> ending;
  {
    const std::lock_guard lock(mutex_);
    ending.swap(membership_);
    alone_.reset();
    groupId_.reset();
    deviceWay_.reset();
    deviceEnd_.reset();  // what the last members' calls have enqueued there may take a while
  }
  inFlight().use(mixesCalls());
  // Before NCCL is broken off, whose calls may stand behind theirs.
  if (const auto group = ending ? ending->groupIfMade() : nullptr) group->endUnfinished();
  reconfigurer_->retire(std::move(ending), exchangeStock(std::make_shared<StockNccl>(nullptr)));
}

StockNccl::Met FairringBackend::meet() {
  return withTorchsErrors([&]() -> StockNccl::Met {
    if (const std::shared_ptr<Membership> membership = this->membership()) {
      membership->noteCallOnDevice();
      const std::int64_t generation = membership->generation(timeout());
      return {generation, membership->store(timeout())};
    }
    const std::lock_guard lock(mutex_);
    if (alone_) return *alone_;
    throw Failure(makeError(ErrorKind::Usage, "rank ", getRank(), ": this process group has ended"));
  });
}

c10d::ErrorType FairringBackend::getError() {
  if (isForked()) return c10d::ErrorType::COMM_ERROR;
  const Error error = firstError();
  if (!error) return c10d::ErrorType::SUCCESS;
  switch (error.kind()) {
    case ErrorKind::Timeout: return c10d::ErrorType::TIMEOUT;
    case ErrorKind::PeerDied:
    case ErrorKind::PeerLeft: return c10d::ErrorType::REMOTE_ERROR;
    default: return c10d::ErrorType::COMM_ERROR;
  }
}

Error FairringBackend::firstError() const {
  const std::shared_ptr<Membership> membership = this->membership();
  return membership ? membership->error() : Error();
}

void FairringBackend::abort() {
  if (isForked()) return;
  const GilReleased withoutLock;
  if (const std::shared_ptr<Membership> membership = this->membership()) {
    membership->abort(makeError(ErrorKind::Aborted, "rank ", getRank(), " aborted its process group ", getGroupUid(),
                                ": its calls ended where they were")
                          .about({getRank()}));
  }
  if (reconfigurer_) loseMembers();
  Fallback::abort();
}

void FairringBackend::shutdown() {
  if (isForked()) return;
  const GilReleased withoutLock;
  FirstException thrown;
  thrown.of([this] { Fallback::shutdown(); });
  std::shared_ptr<Membership> ending;
  std::shared_ptr<const MakeNccl> make;  // the last reference takes Python's lock
  {
    const std::lock_guard lock(mutex_);
    ending.swap(membership_);
    alone_.reset();
    make.swap(origin_.makeNccl);
  }
  ending.reset();
  if (reconfigurer_) reconfigurer_->end();
  thrown.rethrow();
}

}  // namespace fairring
