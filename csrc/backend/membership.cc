#include "backend/membership.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "transport/socket.h"
#include "transport/tensorpipe_channels.h"

namespace fairring {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFirstPause{2};  // between two looks at the store
constexpr std::chrono::milliseconds kLongestPause{256};
constexpr int kProbeMs = 1'000;

Secret toSecret(const Bytes& bytes, const std::string& group) {
  Secret secret{};
  check(bytes.size() == secret.size(), ErrorKind::Configuration, "group ", group, ": its secret has ", bytes.size(),
        " bytes instead of ", secret.size(), ": is something else writing to the job's store?");
  std::ranges::transform(bytes, secret.begin(), [](std::uint8_t byte) { return std::byte{byte}; });
  return secret;
}

std::string listed(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 16;
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kShown); ++i) text += concat(i == 0 ? "" : ", ", ranks[i]);
  return ranks.size() > kShown ? concat(text, " and ", ranks.size() - kShown, " more") : text;
}

// Whether nobody listens where the facts say. Anything but a refusal is the engine's to find out, and to explain.
bool refusesConnection(const std::string& address, int port) {
  try {
    const Descriptor probe = startConnect(tcpAddress(address, port));
    pollfd ready{.fd = probe.get(), .events = POLLOUT, .revents = 0};
    return ::poll(&ready, 1, kProbeMs) > 0 && finishConnect(probe) == ECONNREFUSED;
  } catch (const Failure&) {
    return false;
  }
}

}  // namespace

Membership::Membership(const c10::intrusive_ptr<c10d::Store>& store, MembershipOptions options, OnFailed onFailed)
    : store_(store),
      options_(std::move(options)),
      runtime_(Runtime::acquire({options_.facts.addresses, options_.facts.siteAddresses}, options_.ports)),
      onFailed_(std::move(onFailed)),
      seating_(*store_, options_.rank) {
  startListening(*store_);
}

Membership::~Membership() {
  if (!error() && !missed_) seating_.leave();
  group_.reset();
  stopListening();
}

void Membership::startListening(c10d::Store& store) {
  const Secret secret = agreeOnSecret(store);
  const GroupId id = makeGroupId(secret, concat(options_.name, "/", seating_.generation()));
  endpoint_ = std::make_shared<GroupEndpoint>(id, secret, options_.rank, options_.tls);
  runtime_->acceptor().add(endpoint_);
  RankFacts facts = options_.facts;
  facts.addresses = runtime_->interfaces().rail;
  facts.siteAddresses = runtime_->interfaces().site;
  facts.port = runtime_->acceptor().port();
  describeRdma(facts);
  store.set(factsKey(options_.rank), encode(facts));  // last: who reads it may connect at once
}

void Membership::stopListening() { runtime_->acceptor().remove(endpoint_); }

std::string Membership::key(const std::string& name) const {
  return concat("fairring/", seating_.generation(), "/", name);
}

std::string Membership::factsKey(int rank) const { return key(concat(rank, "/facts")); }

Secret Membership::agreeOnSecret(c10d::Store& store) const {
  if (!options_.secret.empty()) return toSecret({options_.secret.begin(), options_.secret.end()}, options_.name);
  const Secret mine = randomSecret();
  Bytes offer;
  offer.reserve(mine.size());
  for (const std::byte byte : mine) offer.push_back(std::to_integer<std::uint8_t>(byte));
  return toSecret(store.compareSet(key("secret"), Bytes{}, offer), options_.name);
}

Group& Membership::group(std::chrono::milliseconds timeout) {
  std::unique_lock making(making_);
  refuseIfAborted();
  if (group_) return *group_;
  meet(making, {timeout, options_.heartbeatTimeout});
  if (group_) return *group_;
  tellTransport();
  GroupSettings settings{.name = options_.name,
                         .rank = options_.rank,
                         .transports = transportFor(facts_).transports,
                         .makeTensorPipe = makeTensorPipeChannels,
                         .totalMemoryBytes = options_.totalMemoryBytes,
                         .sliceBytes = options_.sliceBytes,
                         .rows = options_.rows,
                         .heartbeatTimeout = options_.heartbeatTimeout,
                         .failed = [this](const Error& error) { announce(error); }};
  equip(settings);
  auto made = std::make_shared<Group>(runtime_->threads(), endpoint_, std::move(settings), facts_);
  const std::lock_guard lock(mutex_);
  if (aborted_) made->abort(aborted_);
  group_ = std::move(made);
  return *group_;
}

std::vector<RankFacts> Membership::factsOfAll(std::chrono::milliseconds timeout) {
  std::unique_lock making(making_);
  refuseIfAborted();
  meet(making, {timeout, options_.heartbeatTimeout});
  return facts_;
}

std::int64_t Membership::generation(std::chrono::milliseconds timeout) {
  std::unique_lock making(making_);
  refuseIfAborted();
  meet(making, {timeout, options_.heartbeatTimeout});
  return seating_.generation();
}

std::int64_t Membership::generationInBackground(std::chrono::milliseconds timeout) {
  std::unique_lock making(making_);
  refuseIfAborted();
  meet(making, {timeout, Clock::duration::max()});
  return seating_.generation();
}

void Membership::refuseIfAborted() const {
  const std::lock_guard lock(mutex_);
  if (aborted_) throw Failure(aborted_);
}

// Looks again and again instead of waiting in the store: that can't be interrupted, and would say nothing of a
// generation that has been closed, nor of a rank whose facts are there but whose listener is not: one that has died.
void Membership::meet(std::unique_lock<std::mutex>& making, const Waiting& waiting) {
  if (!facts_.empty()) return;
  try {
    awaitFacts(making, waiting);
  } catch (const c10::DistError& error) {
    throw Failure(makeError(ErrorKind::Connection, "rank ", options_.rank, " of group ", options_.name,
                            " lost the store while it waited for the other ranks (", error.what_without_backtrace(),
                            "): the process that holds it, rank 0 or torchrun, has ended; its output says why"));
  }
}

// Several threads may wait here, each for as long as it likes: between looks they let each other through.
void Membership::awaitFacts(std::unique_lock<std::mutex>& making, const Waiting& waiting) {
  const std::chrono::milliseconds timeout = waiting.timeout;
  // A connection of its own: waiting on a store keeps all others off that store's connection.
  const c10::intrusive_ptr<c10d::Store> store = store_->clone();
  {
    const std::lock_guard lock(mutex_);
    ownStore_ = store;
  }
  const auto end = Clock::now() + timeout;
  std::chrono::milliseconds pause = kFirstPause;
  auto allAlive = Clock::now();  // as far as is known
  for (int there = 0;;) {
    while (there < options_.size && store->check({factsKey(there)})) ++there;
    if (seating_.isClosed(*store)) {
      stopListening();
      seating_.moveOn(*store);
      startListening(*store);
      there = 0;
      allAlive = Clock::now();
      continue;
    }
    refuseIfFailed(*store);
    const std::int64_t generation = seating_.generation();
    const bool haveCome = there == options_.size;
    const std::vector<int> missing = haveCome ? fetchFacts(*store) : missingRanks(*store, there);
    if (!facts_.empty()) return;
    if (!haveCome) allAlive = Clock::now();
    if (Clock::now() - allAlive >= waiting.forDead) throw Failure(died(missing));
    if (timeout != c10d::Store::kNoTimeout && Clock::now() >= end) throw Failure(missedRanks(missing, timeout));
    making.unlock();
    pauseUnlessAborted(pause);
    making.lock();
    if (!facts_.empty()) return;
    if (seating_.generation() != generation) {
      there = 0;
      allAlive = Clock::now();
    }
    pause = std::min(2 * pause, kLongestPause);
  }
}

void Membership::refuseIfFailed(c10d::Store& store) const {
  if (!store.check({key("error")})) return;
  throw Failure(
      makeError(ErrorKind::PeerLeft, "rank ", options_.rank, " of group ", options_.name,
                ": the group failed before this rank was connected to the others: ", store.get_to_str(key("error"))));
}

void Membership::lookAround(const std::function<bool()>& stillWaits) {
  const int next = (options_.rank + 1) % options_.size;
  c10::intrusive_ptr<c10d::Store> store;
  RankFacts there;
  {
    const std::scoped_lock lock(making_, mutex_);
    if (facts_.empty()) return;
    store = ownStore_;
    there = facts_[static_cast<std::size_t>(next)];
  }
  try {
    refuseIfFailed(*store);
    const std::string& address = there.addressesFrom(options_.facts.place.site).front();
    if (refusesConnection(address, there.port) && stillWaits()) abort(ended(next, there, address, options_.name));
  } catch (const Failure& failure) {
    abort(failure.error());
  }
}

void Membership::announce(const Error& error) {
  c10::intrusive_ptr<c10d::Store> store;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(announced_, true)) return;
    store = ownStore_;
  }
  completion().post([store, shared = store_, key = key("error"), text = error.text(), onFailed = onFailed_] {
    onFailed();
    try {
      (store ? store : shared->clone())->set(key, text);  // the shared connection may be waited on
      // NOLINTNEXTLINE(bugprone-empty-catch): the store may have gone with its rank; the neighbours know all the same
    } catch (const std::exception&) {
    }
  });
}

void Membership::pauseUnlessAborted(std::chrono::milliseconds pause) {
  std::unique_lock lock(mutex_);
  aborting_.wait_for(lock, pause, [this] { return aborted_ || givenUp_; });
  if (aborted_) throw Failure(aborted_);
  if (givenUp_) throw Failure(makeError(ErrorKind::Aborted, "rank ", options_.rank, " left group ", options_.name));
}

void Membership::giveUp() {
  const std::lock_guard lock(mutex_);
  givenUp_ = true;
  aborting_.notify_all();
}

Error Membership::missedRanks(const std::vector<int>& missing, std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  missed_ = true;
  return makeError(ErrorKind::Timeout, "rank ", options_.rank, " of group ", options_.name, ": after ", timeout.count(),
                   " ms rank(s) ", listed(missing), " of ", options_.size, " had not made the group (generation ",
                   seating_.generation(), "): did they start, do they live, and can they reach the store?");
}

Error Membership::died(const std::vector<int>& dead) {
  const std::lock_guard lock(mutex_);
  missed_ = true;
  return makeError(ErrorKind::PeerDied, "rank ", options_.rank, " of group ", options_.name, ": rank(s) ", listed(dead),
                   " of ", options_.size, " made the group and died before it was used: for ",
                   options_.heartbeatTimeout.count(), " ms nobody has listened where they did, and they have not come ",
                   "again (FAIRRING_HEARTBEAT_TIMEOUT says how long to wait for that); look at their own output");
}

// Takes the facts of all, unless there are ranks that have died: it returns these.
std::vector<int> Membership::fetchFacts(c10d::Store& store) {
  std::vector<RankFacts> facts;
  facts.reserve(static_cast<std::size_t>(options_.size));
  std::vector<int> dead;
  for (int rank = 0; rank < options_.size; ++rank) facts.push_back(decodeFacts(store.get_to_str(factsKey(rank))));
  // First: who finds these wrong leaves, and an address that nobody else can reach looks like a listener that refuses.
  checkSettings(facts);
  checkAddresses(facts);
  chooseTransport(options_.transport, facts);
  for (int rank = 0; rank < options_.size; ++rank) {
    const RankFacts& there = facts[static_cast<std::size_t>(rank)];
    const std::string& address = there.addressesFrom(options_.facts.place.site).front();
    if (rank != options_.rank && refusesConnection(address, there.port)) dead.push_back(rank);
  }
  if (dead.empty()) facts_ = std::move(facts);
  return dead;
}

std::vector<int> Membership::missingRanks(c10d::Store& store, int from) const {
  std::vector<int> missing;
  for (int rank = from; rank < options_.size; ++rank) {
    if (!store.check({factsKey(rank)})) missing.push_back(rank);
  }
  return missing;
}

std::optional<std::uint64_t> Membership::enter(DelegatedCall call) {
  std::shared_ptr<Group> group;
  {
    const std::lock_guard lock(mutex_);
    group = group_;
  }
  if (!group) return std::nullopt;
  return group->enter(std::move(call));  // without the lock: whoever submits may serve the loop, which may announce
}

void Membership::finish(std::uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  if (group_) group_->finish(ticket);
}

void Membership::abort(const Error& error) {
  std::shared_ptr<Group> group;
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_) aborted_ = error;
    group = group_;
  }
  aborting_.notify_all();
  if (group) {
    group->abort(error);
  } else {
    announce(error);
  }
}

Error Membership::error() const {
  const std::lock_guard lock(mutex_);
  if (aborted_) return aborted_;
  return group_ ? group_->error() : Error();
}

TrafficByLevel Membership::traffic() const {
  std::shared_ptr<Group> group;
  {
    const std::lock_guard lock(mutex_);
    group = group_;
  }
  return group ? group->traffic() : TrafficByLevel();
}

}  // namespace fairring
