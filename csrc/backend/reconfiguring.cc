// Groups of members that are known beforehand and need no store to meet: c10d's reconfigure, by which the members of a
// group change (PyTorch 2.15 on), and shrink, which makes a group of those that are left.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>
#include <variant>

#include "backend/fairring_backend.h"
#include "backend/gil.h"

namespace fairring {

namespace op = operation;

namespace {

// The time to connect a neighbour beyond the call's own: the call's timer says more about the missing ranks.
constexpr std::chrono::seconds kAfterTheTimer{10};

}  // namespace

std::shared_ptr<Membership> FairringBackend::membersOf(Roster roster, MembershipOptions options,
                                                       std::chrono::milliseconds limit, const Parts& parts) const {
  if (roster.facts.size() == 1) return nullptr;
  options.rank = roster.rank;
  options.size = static_cast<int>(roster.facts.size());
  options.limitHeartbeats(timeout());
  if (limit > std::chrono::milliseconds(0)) options.connectTimeout = limit + kAfterTheTimer;
  return std::make_shared<Membership>(std::move(roster), std::move(options), std::bind_front(&Parts::breakOff, parts));
}

std::optional<StockNccl::Met> FairringBackend::aloneIf(const std::shared_ptr<Membership>& membership) {
  if (membership) return std::nullopt;
  return StockNccl::Met{Membership::kOnlyGeneration, c10::make_intrusive<c10d::HashStore>()};
}

// An all-gather, which ends on no rank before all have come: each tells all others where it comes from, and the port of
// the members' store, if it has that.
Fallback::WorkPtr FairringBackend::meetMembers(std::chrono::milliseconds limit) {
  const std::shared_ptr<Membership> membership = this->membership();
  const auto store = membership ? membership->membersStore() : nullptr;
  const auto told = lineage_->told();
  const at::Tensor history = at::empty({static_cast<std::int64_t>(told.size())}, at::kByte);
  std::memcpy(history.data_ptr(), told.data(), told.size());
  const at::Tensor port = at::full({1}, store ? store->port() : MembersStore::kNone, at::kInt);
  const at::Tensor histories = at::empty({getSize(), history.numel()}, at::kByte);
  const at::Tensor ports = at::empty({getSize()}, at::kInt);
  c10d::AllgatherOptions options;
  options.timeout = limit;
  options.asyncOp = true;
  HostCall call = gatherCall(op::kReconfigure, {history, port}, {{histories, ports}}, options);
  standInRows(call, {histories, ports}, {history, port});
  call.done = [lineage = lineage_, store = std::weak_ptr(store), rank = getRank(), histories,
               ports](const Error& error) {
    if (error) return;
    lineage->learn(rank, {static_cast<const std::byte*>(histories.const_data_ptr()), histories.nbytes()});
    if (const auto there = store.lock()) there->learn(static_cast<std::uint16_t>(*ports.const_data_ptr<int>()));
  };
  return runOnHost(std::move(call));
}

namespace {

constexpr int kShrinkAbort = 1;  // torch's SHRINK_ABORT
constexpr std::chrono::milliseconds kAtOnce{0};

std::vector<int> without(int size, const std::vector<std::int64_t>& excluded) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) {
    if (std::ranges::find(excluded, rank) == excluded.end()) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> FairringBackend::shrink(const std::vector<std::int64_t>& excluded, int flags,
                                                          const c10::intrusive_ptr<Options>& options) {
  const GilReleased withoutLock;
  refuseUnlessUsable();
  const std::vector<int> ranks = without(getSize(), excluded);
  const bool aborts = (flags & kShrinkAbort) != 0;
  TORCH_CHECK_WITH(ValueError, std::ranges::find(ranks, getRank()) != ranks.end(), "rank ", getRank(),
                   " is to be excluded: the others alone shrink the group");
  const std::shared_ptr<Membership> parent = membership();
  TORCH_CHECK_WITH(DistBackendError, parent, "a process group of one rank can't be shrunk");
  if (aborts) {
    parent->abort(makeError(ErrorKind::Aborted, "rank ", getRank(), " shrank its process group ", getGroupUid(),
                            " with SHRINK_ABORT: its calls ended where they were")
                      .about({getRank()}));
  }
  const std::chrono::milliseconds limit = options ? options->timeout : timeout();
  const auto made = shrunkTo(ranks, limit, aborts ? kAtOnce : limit);
  try {
    made->meetMembers(limit)->wait();
  } catch (
      const std::exception&) {  // another has died: the next attempt starts from here; ranks that have met go on there
    if (const auto failed = made->membership()) lineage_->leave(failed->id(), settled(*failed, kAtOnce));
    throw;
  }
  return made;
}

c10::intrusive_ptr<FairringBackend> FairringBackend::shrunkTo(const std::vector<int>& ranks,
                                                              std::chrono::milliseconds limit,
                                                              std::chrono::milliseconds forThoseUnderWay) {
  Origin origin;
  {
    const std::lock_guard lock(mutex_);
    origin = origin_;
  }
  MembershipOptions& own = origin.options;
  std::vector<int> everyRank(static_cast<std::size_t>(getSize()));
  std::iota(everyRank.begin(), everyRank.end(), 0);
  const auto before = own.shrunkFrom.value_or(MembershipOptions::Ancestor{own.name, {}, everyRank});
  MembershipOptions::Ancestor ancestor{before.name, {}, {}};
  for (const int rank : ranks) ancestor.ranks.push_back(before.ranks.at(static_cast<std::size_t>(rank)));
  std::string purpose = concat("attempt ", lineage_->countAttempt(ancestor.ranks), " of ranks");
  for (const int rank : ancestor.ranks) purpose += concat(" ", rank);
  return withTorchsErrors([&] {
    Roster roster = membership()->rosterOf(ranks, purpose, limit);
    leaveGroup(forThoseUnderWay);
    ancestor.secret = roster.ancestor;
    own = own.ofRanks(ranks, concat(ancestor.name, " (shrunk to ", ranks.size(), " ranks)"));
    own.shrunkFrom = std::move(ancestor);
    const GroupId id = makeGroupId(roster.secret, own.name);
    Parts parts{std::make_shared<Meeting>(nullptr), stockOf(origin, timeout()), std::make_shared<Hooks>()};
    auto members = membersOf(std::move(roster), own, limit, parts);
    auto alone = aloneIf(members);
    auto made = c10::make_intrusive<FairringBackend>(std::move(members), std::move(alone), std::move(origin), timeout(),
                                                     std::move(parts));
    made->lineage_ = lineage_->descendant();
    made->beginAs(id);
    remember(made);
    return made;
  });
}

#ifdef FAIRRING_TORCH_2_15
namespace {

std::vector<std::string> ordered(const c10d::ReconfigureOptions& options) {
  if (const auto* list = std::get_if<std::vector<std::string>>(&options.handles)) return *list;
  const auto& set = std::get<std::unordered_set<std::string>>(options.handles);
  return inOrder({set.begin(), set.end()});
}

Reconfigurer& required(const std::unique_ptr<Reconfigurer>& reconfigurer) {
  TORCH_CHECK_WITH(DistBackendError, reconfigurer, "this process group keeps its members: make it by ",
                   "init_process_group(..., enable_reconfigure=True)");
  return *reconfigurer;
}

}  // namespace

c10d::ReconfigureHandle FairringBackend::get_reconfigure_handle() const {
  const GilReleased withoutLock;
  refuseIfEnded();
  Reconfigurer& reconfigurer = required(reconfigurer_);
  return withTorchsErrors([&] { return reconfigurer.handle(isConfigured() ? getRank() : Handle::kNewcomer); });
}

// Groups that are split from this one inherit these from now on.
FairringBackend::Origin FairringBackend::originFor(int rank, int size, std::int64_t uuid) {
  const std::lock_guard lock(mutex_);
  MembershipOptions& own = origin_.options;
  own.rank = rank;
  own.size = size;
  own.globalRanks.resize(static_cast<std::size_t>(size));
  std::iota(own.globalRanks.begin(), own.globalRanks.end(), 0);
  Origin named = origin_;
  named.options.name = concat(own.name, " (uuid ", uuid, ")");
  return named;
}

Fallback::WorkPtr FairringBackend::reconfigure(const c10d::ReconfigureOptions& options) {
  const GilReleased withoutLock;
  refuseIfEnded();
  Reconfigurer& reconfigurer = required(reconfigurer_);
  const std::chrono::milliseconds limit = options.timeout.value_or(timeout());
  withTorchsErrors([&] {
    Roster roster = reconfigurer.roster(options.uuid, ordered(options));
    loseMembers();
    rank_ = roster.rank;
    size_ = static_cast<int>(roster.facts.size());
    const Origin named = originFor(rank_, size_, options.uuid);
    const Parts parts{nullptr, stockOf(named, timeout()), hooks()};
    const GroupId id = makeGroupId(roster.secret, named.options.name);
    auto members = membersOf(std::move(roster), named.options, limit, parts);
    exchangeStock(parts.nccl);
    {
      const std::lock_guard lock(mutex_);
      alone_ = aloneIf(members);
      membership_ = std::move(members);
    }
    beginAs(id);
  });
  monitoredBarriers_ = 0;
  restartCounting();
  setConfigured(true);
  return meetMembers(limit);
}
#endif

}  // namespace fairring
