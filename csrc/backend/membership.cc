#include "backend/membership.h"

#include <c10/util/Logging.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "backend/openmp_spinning.h"
#include "backend/refused_connection.h"

namespace fairring {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFirstWait{2};  // between two polls of the store
constexpr std::chrono::milliseconds kLongestWait{256};
constexpr std::chrono::seconds kLastWords{5};

// A forked child inherits them.
Departures& departuresOfProcess() {
  static Departures departures;
  return departures;
}

// Behind the errors that other ranks have announced, of which the first counts. It waits for no answer, which would
// never come where the link to the store is cut. A store that can't append keeps the last error.
void announceIn(c10d::Store& store, const std::string& key, const std::string& text) {
  const std::string ended = text + Bootstrap::kErrorEnd;
  const std::vector<std::uint8_t> bytes(ended.begin(), ended.end());
  store.hasExtendedApi() ? store.append(key, bytes) : store.set(key, bytes);
}

// Once the other ranks have been told, by another of the completion threads: a store that does not answer is not waited
// for any longer.
[[noreturn]] void endProcess(Completion& completion, const std::function<void()>& tell, const std::string& text,
                             const char* why) {
  const auto told = std::make_shared<std::promise<void>>();
  completion.post([told, tell] {
    tell();
    told->set_value();
  });
  told->get_future().wait_for(kLastWords);
  std::fprintf(stderr, "fairring: %s; the process ends, as FAIRRING_ON_ERROR=%s\n", text.c_str(), why);
  std::_Exit(EXIT_FAILURE);
}

std::string listed(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 16;
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kShown); ++i) text += concat(i == 0 ? "" : ", ", ranks[i]);
  return ranks.size() > kShown ? concat(text, " and ", ranks.size() - kShown, " more") : text;
}

}  // namespace

MembershipOptions MembershipOptions::ofRanks(const std::vector<int>& ranks, std::string groupName) const {
  MembershipOptions options = *this;
  options.name = std::move(groupName);
  options.rank = static_cast<int>(std::ranges::find(ranks, rank) - ranks.begin());
  options.size = static_cast<int>(ranks.size());
  options.globalRanks.clear();
  for (const int parents : ranks) options.globalRanks.push_back(globalRanks.at(static_cast<std::size_t>(parents)));
  options.reconfigurable = false;
  options.shrunkFrom.reset();
  return options;
}

Membership::Membership(const c10::intrusive_ptr<c10d::Store>& store, MembershipOptions options, OnFailed onFailed)
    : store_(store),
      options_(std::move(options)),
      runtime_(runtimeFor(options_)),
      onFailed_(std::move(onFailed)),
      sharedKeys_(store_) {
  bootstrap_ = std::make_unique<Bootstrap>(*sharedKeys_, options_, bootstrapSteps(), departuresOfProcess());
}

Membership::Membership(Roster roster, MembershipOptions options, OnFailed onFailed)
    : options_(std::move(options)),
      runtime_(runtimeFor(options_)),
      onFailed_(std::move(onFailed)),
      rosterFacts_(std::move(roster.facts)),
      membersStore_(std::make_shared<MembersStore>(rosterFacts_, options_.rank, options_.ports)) {
  listen(options_.name, roster.secret);
}

Membership::~Membership() {
  {
    const std::lock_guard lock(asking_->mutex);
    asking_->isOpen = false;
  }
  if (bootstrap_ && !error() && !missed_) bootstrap_->leave();
  group_.reset();
  stopListening();
}

BootstrapSteps Membership::bootstrapSteps() {
  return {.listen =
              [this](std::int64_t generation, const Secret& secret) {
                listen(concat(options_.name, "/", generation), secret);
                return factsHere(options_, *runtime_);
              },
          .stopListening = [this] { stopListening(); },
          .checkFacts =
              [this](const std::vector<RankFacts>& facts) {
                checkSettings(facts);
                checkAddresses(facts);
                transportFor(facts);
              },
          .isGone =
              [this](int rank, const RankFacts& there) {
                // One that was refused may have left: the group's first use finds that error, which tells more.
                return !wasRefused(rank) &&
                       refusesConnection(there.addressesFrom(options_.facts.place.site).front(), there.port);
              }};
}

bool Membership::wasRefused(int rank) const {
  bool refused = false;
  runtime_->threads().slices.runAndWait([&] { refused = endpoint_->hasRefused(rank); });
  return refused;
}

void Membership::listen(const std::string& name, const Secret& secret) {
  endpoint_ = std::make_shared<GroupEndpoint>(makeGroupId(secret, name), secret, options_.rank, options_.tls);
  runtime_->acceptor().add(endpoint_);
}

std::shared_ptr<Runtime> Membership::runtimeFor(const MembershipOptions& options) {
  return Runtime::acquire({options.facts.addresses, options.facts.siteAddresses}, options.ports);
}

void Membership::stopListening() { runtime_->acceptor().remove(endpoint_); }

Group& Membership::group(std::chrono::milliseconds timeout) {
  std::unique_lock making(making_);
  refuseIfAborted();
  if (group_) return *group_;
  meet(making, {timeout, options_.heartbeatTimeout});
  if (group_) return *group_;
  tellTransport();
  GroupSettings settings{.name = options_.name,
                         .rank = options_.rank,
                         .tuning = options_,
                         .transports = transportFor(facts()).transports,
                         .failed = [this](const Error& error) { announce(error); },
                         .endsProcess = [this](const Error& error) { return endsProcess(error); },
                         .makeAccelerator = nullptr,
                         .offLoop = [this](auto task) { completion().post(std::move(task)); }};
  equip(settings);
  leaveOffSpinning(runtime_->threads().vitals.loop(), ranksOfMachine());
  if (store_) settings.lookForFailure = [this](auto found) { lookForFailure(std::move(found)); };
  auto made = std::make_shared<Group>(runtime_->threads(), endpoint_, std::move(settings), facts());
  const std::lock_guard lock(mutex_);
  if (aborted_) made->abort(aborted_);
  if (!deviceWay_.empty()) made->noteDeviceWay(deviceWay_);
  group_ = std::move(made);
  return *group_;
}

std::size_t Membership::ranksOfMachine() const {
  const std::string& machine = facts().at(static_cast<std::size_t>(options_.rank)).place.machine;
  const auto isHere = [&](const RankFacts& rank) { return rank.place.machine == machine; };
  return static_cast<std::size_t>(std::ranges::count_if(facts(), isHere));
}

std::vector<RankFacts> Membership::factsOfAll(std::chrono::milliseconds timeout) {
  std::unique_lock making(making_);
  refuseIfAborted();
  meet(making, {timeout, options_.heartbeatTimeout});
  return facts();
}

Roster Membership::rosterOf(const std::vector<int>& ranks, const std::string& purpose,
                            std::chrono::milliseconds timeout) {
  std::unique_lock making(making_);
  if (facts().empty()) refuseIfAborted();
  meet(making, {timeout, options_.heartbeatTimeout});
  const Secret& ancestor = options_.shrunkFrom ? options_.shrunkFrom->secret : endpoint_->secret;
  Roster roster{.facts = {}, .secret = derivedSecret(ancestor, "members", purpose), .ancestor = ancestor};
  for (const int rank : ranks) {
    if (rank == options_.rank) roster.rank = static_cast<int>(roster.facts.size());
    roster.facts.push_back(facts().at(static_cast<std::size_t>(rank)));
  }
  return roster;
}

std::int64_t Membership::generation(std::chrono::milliseconds timeout) {
  std::unique_lock making(making_);
  refuseIfAborted();
  meet(making, {timeout, options_.heartbeatTimeout});
  return bootstrap_ ? bootstrap_->generation() : kOnlyGeneration;
}

c10::intrusive_ptr<c10d::Store> Membership::store(std::chrono::milliseconds timeout) const {
  return membersStore_ ? membersStore_->get(timeout) : store_;
}

std::string Membership::meetInBackground(std::chrono::milliseconds timeout) {
  std::unique_lock making(making_);
  refuseIfAborted();
  meet(making, {timeout, Clock::duration::max()});
  return bootstrap_->allMetKey();
}

void Membership::refuseIfAborted() const {
  const std::lock_guard lock(mutex_);
  if (aborted_) throw Failure(aborted_);
}

// Polls instead of waiting in the store: such a wait can't be interrupted, and would not notice a closed generation,
// nor a rank that has died: its facts are there but its listener is not.
void Membership::meet(std::unique_lock<std::mutex>& making, const Waiting& waiting) {
  if (!facts().empty()) return;
  try {
    awaitFacts(making, waiting);
  } catch (const c10::DistError& error) {
    throw Failure(makeError(ErrorKind::Connection, "rank ", options_.rank, " of group ", options_.name,
                            " lost the store while it waited for the other ranks (", error.what_without_backtrace(),
                            "): the process that holds it, rank 0 or torchrun, has ended; its output says why"));
  }
}

// Several threads may wait here, each with its own timeout: between polls they let each other through.
void Membership::awaitFacts(std::unique_lock<std::mutex>& making, const Waiting& waiting) {
  const std::chrono::milliseconds timeout = waiting.timeout;
  // A connection of its own, because a wait on a store blocks all others on that store's connection.
  const c10::intrusive_ptr<c10d::Store> store = store_->clone();
  {
    const std::lock_guard lock(mutex_);
    ownStore_ = store;
  }
  TorchKeyValue keys(store);
  const auto begin = Clock::now();
  const auto end = begin + timeout;
  std::chrono::milliseconds pause = kFirstWait;
  auto allAlive = begin;               // as far as is known
  auto naming = begin + kLongestWait;  // of the missing ranks: seldom, because it asks the store much in a large group
  for (std::int64_t generation = bootstrap_->generation();;) {
    Bootstrap::Look look = bootstrap_->look(keys);
    const bool isMissing = look.state == Bootstrap::State::Missing;
    const auto now = Clock::now();
    const bool isOver = timeout != c10d::Store::kNoTimeout && now >= end;
    if (isMissing && (isOver || now >= naming)) {
      look.ranks = bootstrap_->missing(keys);
      naming = now + (now - begin);
    }
    if (!isMissing || !look.ranks.empty()) note(look.ranks);
    if (look.state == Bootstrap::State::Met) return;
    if (look.state == Bootstrap::State::MovedOn) continue;
    const bool another = std::exchange(generation, bootstrap_->generation()) != generation;
    if (isMissing || another) allAlive = now;
    if (now - allAlive >= waiting.forDead) throw Failure(died(look.ranks));
    if (isOver && !look.ranks.empty()) throw Failure(missedRanks(look.ranks, timeout));
    making.unlock();
    pauseUnlessAborted(pause);
    making.lock();
    pause = std::min(2 * pause, kLongestWait);
  }
}

void Membership::note(const std::vector<int>& absent) {
  const std::lock_guard lock(mutex_);
  absent_ = absent;
}

void Membership::announce(const Error& error) {
  hasFailed_->ring();
  if (membersStore_) membersStore_->breakOff(error);
  c10::intrusive_ptr<c10d::Store> store;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(announced_, true)) return;
    store = ownStore_;
  }
  const bool endsProcess = this->endsProcess(error);
  const char* const why = options_.endsProcess
                              ? "exit says"
                              : "auto says after calls on CUDA tensors, whose results nobody waits for on the host: "
                                "what follows them could be saved; raise lets it go on";
  // No host waits for calls on a device: later work on it reads their results.
  if (hasCallOnDevice_ && !endsProcess) {
    LOG(ERROR) << "fairring: " << error.text() << "; what calls on CUDA tensors return is garbage, if not NaN";
  }
  completion().post([store, shared = store_, key = bootstrap_ ? bootstrap_->errorKey() : "", text = error.text(),
                     onFailed = onFailed_, &completion = completion(), endsProcess, why] {
    onFailed(completion, endsProcess);
    const auto tell = [store, shared, key, text] {
      try {
        if (shared) announceIn(*(store ? store : shared->clone()), key, text);  // the shared one may be waited on
        // NOLINTNEXTLINE(bugprone-empty-catch): the store may have gone with its rank; the neighbours know all the same
      } catch (const std::exception&) {
      }
    };
    endsProcess ? endProcess(completion, tell, text, why) : tell();
  });
}

// Another rank's abort() is no error of its own.
bool Membership::endsProcess(const Error& error) const {
  if (error.kind() == ErrorKind::Aborted) return false;
  return options_.endsProcess || (options_.endsProcessWithDevice && hasCallOnDevice_);
}

// Looks in the store, where the rank that failed first says why.
void Membership::lookForFailure(std::function<void(const Error&)> found) {
  // On a thread that nobody waits for: if the link to the store is cut, the answer never comes, and torch's store has
  // no question that can be broken off. The loop that the answer goes to is there as long as this membership.
  std::thread([found = std::move(found), asking = asking_, store = store_, key = bootstrap_->errorKey(),
               options = BootstrapOptions(options_)] {
    Error failure;
    try {
      TorchKeyValue keys(store->clone());
      failure = Bootstrap::failureIn(keys, key, options);
      // NOLINTNEXTLINE(bugprone-empty-catch): the store has gone, and nobody can tell
    } catch (const std::exception&) {
    }
    const std::lock_guard lock(asking->mutex);
    if (asking->isOpen) found(failure);
  }).detach();
}

void Membership::pauseUnlessAborted(std::chrono::milliseconds pause) {
  std::unique_lock lock(mutex_);
  aborting_.wait_for(lock, pause, [this] { return aborted_ || givenUp_; });
  if (aborted_) throw Failure(aborted_);
  if (givenUp_) throw Failure(makeError(ErrorKind::Aborted, "rank ", options_.rank, " left group ", options_.name));
}

void Membership::endUnfinished() {
  if (const std::shared_ptr<Group> group = groupIfMade()) group->endUnfinished();
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
                   bootstrap_->generation(), "): did they start, do they live, and can they reach the store?")
      .about(missing);
}

Error Membership::died(const std::vector<int>& dead) {
  const std::lock_guard lock(mutex_);
  missed_ = true;
  return makeError(ErrorKind::PeerDied, "rank ", options_.rank, " of group ", options_.name, ": rank(s) ", listed(dead),
                   " of ", options_.size, " made the group and died before it was used: for ",
                   options_.heartbeatTimeout.count(), " ms nobody has listened where they did, and they have not come ",
                   "again (FAIRRING_HEARTBEAT_TIMEOUT says how long to wait for that); look at their own output")
      .about(dead);
}

void Membership::expire(TimedCall call, std::optional<int> peer, std::function<bool()> isUnderWay) {
  const std::lock_guard lock(mutex_);
  if (group_) group_->expire(std::move(call), peer, std::move(isUnderWay));
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

std::shared_ptr<Group> Membership::groupIfMade() const {
  const std::lock_guard lock(mutex_);
  return group_;
}

GroupId Membership::id() {
  const std::lock_guard making(making_);
  return endpoint_->id;
}

std::uint64_t Membership::settle(std::chrono::milliseconds forThoseUnderWay) {
  const std::shared_ptr<Group> group = groupIfMade();
  return group ? group->settle(forThoseUnderWay) : 0;
}

std::uint64_t Membership::callsMade() const {
  const std::shared_ptr<Group> group = groupIfMade();
  return group ? group->callsMade() : 0;
}

TrafficByLevel Membership::traffic() const {
  const std::shared_ptr<Group> group = groupIfMade();
  return group ? group->traffic() : TrafficByLevel();
}

std::string Membership::trace(std::size_t calls, const std::string& program) const {
  if (const std::shared_ptr<Group> group = groupIfMade()) return group->trace(calls, program);
  TraceFacts facts = factsOfWait();
  facts.program = program;
  return facts.absent.empty() ? "" : chromeTrace(facts, {});
}

void Membership::writeTrace(std::size_t calls, const std::string& program) const {
  if (const std::shared_ptr<Group> group = groupIfMade()) return group->writeTrace(calls, program);
  const std::string text = options_.traceDirectory.empty() ? "" : trace(calls, program);
  if (!text.empty()) writeTraceFile(options_.traceDirectory, options_.name, options_.rank, text);
}

// Nothing is known about the other ranks yet.
TraceFacts Membership::factsOfWait() const {
  TraceFacts facts;
  facts.group = options_.name;
  facts.rank = options_.rank;
  const auto size = static_cast<std::size_t>(options_.size);
  facts.machines.resize(size);
  facts.hosts.resize(size);
  facts.hosts[static_cast<std::size_t>(options_.rank)] = options_.facts.hostname;
  facts.now = Recorder::now();
  facts.unixNow = std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::lock_guard lock(mutex_);
  facts.absent = absent_;
  return facts;
}

}  // namespace fairring
