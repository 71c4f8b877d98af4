// Groups of members that are known beforehand and need no store to meet: c10d's reconfigure, by which a group's members
// change (PyTorch 2.15 on), and shrink, which makes a group of the surviving ranks.
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <numeric>
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
                                                       std::chrono::milliseconds limit,
                                                       std::shared_ptr<Hooks> hooks) const {
  if (roster.facts.size() == 1) return nullptr;
  options.rank = roster.rank;
  options.size = static_cast<int>(roster.facts.size());
  options.heartbeatTimeout = std::min(options.heartbeatTimeout, timeout());
  if (limit > std::chrono::milliseconds(0)) options.connectTimeout = limit + kAfterTheTimer;
  options.devices = false;
  return std::make_shared<Membership>(
      std::move(roster), std::move(options),
      [hooks = std::move(hooks)](Completion& completion) { completion.post([hooks] { hooks->aborting(); }); });
}

// An all-gather, which ends on no rank before all have come: each tells all others its history.
Fallback::WorkPtr FairringBackend::meetMembers(std::chrono::milliseconds limit) {
  const auto told = lineage_->told();
  const at::Tensor own = at::empty({static_cast<std::int64_t>(told.size())}, at::kByte);
  const at::Tensor all = at::empty({getSize(), own.numel()}, at::kByte);
  std::memcpy(own.data_ptr(), told.data(), told.size());
  c10d::AllgatherOptions options;
  options.timeout = limit;
  BlocksCall call = gatherCall(op::kReconfigure, {own}, {{all}}, options);
  call.waited = false;
  std::byte* to = call.memory.write(all);
  for (std::vector<Block>& blocks : call.blocks) {
    blocks.push_back(bytesBlock(own));
    blocks.front().to = to;
    to += own.numel();
  }
  readFrom(call, 0, own);
  call.done = [lineage = lineage_, rank = getRank(), all](const Error& error) {
    if (!error) lineage->learn(rank, {static_cast<const std::byte*>(all.const_data_ptr()), all.nbytes()});
  };
  return runBlocks(std::move(call));
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
                            " with SHRINK_ABORT: its calls ended where they were"));
  }
  const std::chrono::milliseconds limit = options ? options->timeout : timeout();
  const auto made = shrunkTo(ranks, limit, aborts ? kAtOnce : limit);
  try {
    made->meetMembers(limit)->wait();
  } catch (
      const std::exception&) {  // another has died: the next attempt starts from here; ranks that have met go on there
    if (const auto failed = made->membership()) lineage_->leave(failed->id(), failed->settle(kAtOnce));
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
  Parts parts{std::make_shared<Meeting>(nullptr), std::make_shared<StockNccl>(nullptr, nullptr),
              std::make_shared<Hooks>()};
  try {
    Roster roster = membership()->rosterOf(ranks, purpose, limit);
    leaveGroup(forThoseUnderWay);
    ancestor.secret = roster.ancestor;
    own = own.ofRanks(ranks, concat(ancestor.name, " (shrunk to ", ranks.size(), " ranks)"));
    own.shrunkFrom = std::move(ancestor);
    const GroupId id = makeGroupId(roster.secret, own.name);
    auto members = membersOf(std::move(roster), own, limit, parts.hooks);
    auto made =
        c10::make_intrusive<FairringBackend>(std::move(members), 0, std::move(origin), timeout(), std::move(parts));
    made->lineage_ = lineage_->descendant();
    made->beginAs(id);
    remember(made);
    return made;
  } catch (const Failure& failure) {
    std::rethrow_exception(toException(failure.error()));
  }
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
  try {
    return reconfigurer.handle(isConfigured() ? getRank() : Handle::kNewcomer);
  } catch (const Failure& failure) {
    std::rethrow_exception(toException(failure.error()));
  }
}

// From now on groups that are split from this one inherit these.
MembershipOptions FairringBackend::optionsFor(int rank, int size) {
  const std::lock_guard lock(mutex_);
  MembershipOptions& own = origin_.options;
  own.rank = rank;
  own.size = size;
  own.globalRanks.resize(static_cast<std::size_t>(size));
  std::iota(own.globalRanks.begin(), own.globalRanks.end(), 0);
  return own;
}

Fallback::WorkPtr FairringBackend::reconfigure(const c10d::ReconfigureOptions& options) {
  const GilReleased withoutLock;
  refuseIfEnded();
  Reconfigurer& reconfigurer = required(reconfigurer_);
  const std::chrono::milliseconds limit = options.timeout.value_or(timeout());
  try {
    Roster roster = reconfigurer.roster(options.uuid, ordered(options));
    loseMembers();
    rank_ = roster.rank;
    size_ = static_cast<int>(roster.facts.size());
    MembershipOptions named = optionsFor(rank_, size_);
    named.name = concat(named.name, " (uuid ", options.uuid, ")");
    const GroupId id = makeGroupId(roster.secret, named.name);
    auto members = membersOf(std::move(roster), std::move(named), limit, hooks());
    {
      const std::lock_guard lock(mutex_);
      membership_ = std::move(members);
    }
    beginAs(id);
  } catch (const Failure& failure) {
    std::rethrow_exception(toException(failure.error()));
  }
  monitoredBarriers_ = 0;
  restartCounting();
  setConfigured(true);
  return meetMembers(limit);
}
#endif

}  // namespace fairring
