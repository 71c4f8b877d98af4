#include "backend/membership.h"

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "backend/openmp_spinning.h"
#include "backend/refused_connection.h"
#include "backend/torch_key_value.h"

namespace fairring {
namespace {

// A forked child inherits them.
Departures& departuresOfProcess() {
  static Departures departures;
  return departures;
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

void MembershipOptions::limitHeartbeats(std::chrono::milliseconds timeout) {
  if (timeout.count() > 0) heartbeatTimeout = std::min(heartbeatTimeout, timeout);
}

Membership::Membership(const StorePtr& store, MembershipOptions options, OnFailed onFailed)
    : Membership(store, std::move(options), std::move(onFailed), Roster()) {}

Membership::Membership(Roster roster, MembershipOptions options, OnFailed onFailed)
    : Membership(nullptr, std::move(options), std::move(onFailed), std::move(roster)) {}

Membership::Membership(StorePtr store, MembershipOptions options, OnFailed onFailed, Roster roster)
    : store_(std::move(store)),
      options_(std::move(options)),
      runtime_(runtimeFor(options_)),
      rosterFacts_(std::move(roster.facts)),
      membersStore_(store_ ? nullptr : std::make_shared<MembersStore>(rosterFacts_, options_.rank, options_.ports)),
      notice_(store_, {.always = options_.endsProcess, .withDevice = options_.endsProcessWithDevice},
              std::move(onFailed)),
      devices_(*this) {
  if (!store_) {
    listen(options_.name, roster.secret);
    return;
  }
  TorchKeyValue keys(store_);
  const auto connect = [this]() -> std::unique_ptr<KeyValue> {
    const StorePtr own = store_->clone();
    notice_.keep(own);
    return std::make_unique<TorchKeyValue>(own);
  };
  rendezvous_ = std::make_unique<Rendezvous>(keys, connect, options_, bootstrapSteps(), departuresOfProcess());
}

Membership::~Membership() {
  notice_.close();
  if (rendezvous_ && !error()) rendezvous_->leave();
  group_.reset();
  stopListening();
}

std::unique_ptr<Membership> Membership::trial(std::chrono::milliseconds timeout) const {
  MembershipOptions options = options_;
  options.name += "/trial";
  options.traceDirectory.clear();
  options.endsProcess = options.endsProcessWithDevice = false;
  auto trial = std::make_unique<Membership>(c10::make_intrusive<c10d::PrefixStore>("trial", store(timeout)),
                                            std::move(options), [](Completion&, bool) {});
  trial->failsToo_.emplace(failure_.get_token(), [failure = trial->failure_]() mutable { failure.request_stop(); });
  return trial;
}

BootstrapSteps Membership::bootstrapSteps() {
  return {.listen =
              [this](std::int64_t generation, const Secret& secret) {
                listen(concat(options_.name, "/", generation), secret);
                return factsHere(options_, *runtime_, *memory_);
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
  const auto made = [this] {
    const std::lock_guard lock(mutex_);
    if (aborted_) throw Failure(aborted_);
    return group_.get();
  };
  if (Group* const group = made()) return *group;
  const std::vector<RankFacts>& facts = meetWithin(timeout);
  const std::lock_guard making(making_);
  if (Group* const group = made()) return *group;
  std::shared_ptr<Group> group = makeGroup(facts);
  const std::lock_guard lock(mutex_);
  if (aborted_) group->abort(aborted_);
  if (!deviceWay_.empty()) group->noteDeviceWay(deviceWay_);
  group_ = std::move(group);
  return *group_;
}

std::shared_ptr<Group> Membership::makeGroup(const std::vector<RankFacts>& facts) {
  tellTransport(facts);
  if (!usesRdma(facts)) memory_->giveBack();
  GroupSettings settings{.name = options_.name,
                         .rank = options_.rank,
                         .globalRank = options_.globalRanks.at(static_cast<std::size_t>(options_.rank)),
                         .tuning = options_,
                         .transports = transportFor(facts).transports,
                         .failed = [this](const Error& error) { announce(error); },
                         .memoryLocked = [memory = memory_] { memory->giveBack(); },
                         .warn = [this](const std::string& text) { warn(text); },
                         .endsProcess = [this](const Error& error) { return notice_.endsProcess(error); },
                         .makeAccelerator = [this](int device, const auto& ranks,
                                                   auto timeout) { return devices_.make(device, ranks, timeout); },
                         .offLoop = [this](auto task) { completion().post(std::move(task)); }};
  if (rendezvous_) {
    settings.lookForFailure = [this](auto found) {
      notice_.lookForAnothers(rendezvous_->errorKey(), options_, std::move(found));
    };
  }
  runtime_->help(options_.helpers, std::max(options_.ranksHere, ranksOfMachine(facts)));
  leaveOffSpinning(runtime_->threads().vitals.loop(), ranksOfMachine(facts));
  return std::make_shared<Group>(runtime_->threads(), endpoint_, std::move(settings), facts);
}

std::size_t Membership::ranksOfMachine(const std::vector<RankFacts>& facts) const {
  const std::string& machine = facts.at(static_cast<std::size_t>(options_.rank)).place.machine;
  const auto isHere = [&](const RankFacts& rank) { return rank.place.machine == machine; };
  return static_cast<std::size_t>(std::ranges::count_if(facts, isHere));
}

std::shared_ptr<Group> Membership::groupIfMade() const {
  const std::lock_guard lock(mutex_);
  return group_;
}

std::vector<RankFacts> Membership::factsOfAll(std::chrono::milliseconds timeout) {
  refuseIfAborted();
  return meetWithin(timeout);
}

Roster Membership::rosterOf(const std::vector<int>& ranks, const std::string& purpose,
                            std::chrono::milliseconds timeout) {
  if (rendezvous_ && !rendezvous_->hasMet()) refuseIfAborted();
  const std::vector<RankFacts>& facts = meetWithin(timeout);
  const Secret& ancestor = options_.shrunkFrom ? options_.shrunkFrom->secret : endpoint_->secret;
  Roster roster{.facts = {}, .secret = derivedSecret(ancestor, "members", purpose), .ancestor = ancestor};
  for (const int rank : ranks) {
    if (rank == options_.rank) roster.rank = static_cast<int>(roster.facts.size());
    roster.facts.push_back(facts.at(static_cast<std::size_t>(rank)));
  }
  return roster;
}

std::int64_t Membership::generation(std::chrono::milliseconds timeout) {
  refuseIfAborted();
  meetWithin(timeout);
  return rendezvous_ ? rendezvous_->generation() : kOnlyGeneration;
}

Membership::StorePtr Membership::store(std::chrono::milliseconds timeout) const {
  return membersStore_ ? membersStore_->get(timeout) : store_;
}

std::string Membership::key(const std::string& name) const { return rendezvous_ ? rendezvous_->key(name) : name; }

std::string Membership::meetInBackground(std::chrono::milliseconds timeout) {
  refuseIfAborted();
  meet({.timeout = timeout});
  return rendezvous_->allMetKey();
}

const std::vector<RankFacts>& Membership::meetWithin(std::chrono::milliseconds timeout) {
  return meet({.timeout = timeout, .forDead = options_.heartbeatTimeout});
}

const std::vector<RankFacts>& Membership::meet(const Rendezvous::Patience& patience) {
  if (!rendezvous_) return rosterFacts_;
  try {
    return rendezvous_->meet(patience);
  } catch (const c10::DistError& error) {
    throw Failure(makeError(ErrorKind::Connection, "rank ", options_.rank, " of group ", options_.name,
                            " lost the store while it waited for the other ranks (", error.what_without_backtrace(),
                            "): the process that holds it, rank 0 or torchrun, has ended; its output says why"));
  }
}

void Membership::refuseIfAborted() const {
  const std::lock_guard lock(mutex_);
  if (aborted_) throw Failure(aborted_);
}

void Membership::giveUp() {
  if (!rendezvous_) return;
  rendezvous_->breakOff(makeError(ErrorKind::Aborted, "rank ", options_.rank, " left group ", options_.name));
}

GroupId Membership::id() const { return endpoint_->id; }

void Membership::announce(const Error& error) {
  failure_.request_stop();
  if (membersStore_) membersStore_->breakOff(error);
  notice_.tell(error, rendezvous_ ? rendezvous_->errorKey() : "", completion());
}

void Membership::abort(const Error& error) {
  std::shared_ptr<Group> group;
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_) aborted_ = error;
    group = group_;
  }
  if (rendezvous_) rendezvous_->breakOff(error);
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

void Membership::noteDeviceWay(const std::string& words) {
  const std::lock_guard lock(mutex_);
  deviceWay_ = words;
  if (group_) group_->noteDeviceWay(words);
}

std::string Membership::deviceWay() const {
  const std::lock_guard lock(mutex_);
  return deviceWay_;
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
  facts.sites.resize(size);
  facts.hosts[static_cast<std::size_t>(options_.rank)] = options_.facts.hostname;
  facts.now = Recorder::now();
  facts.unixNow = std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  if (rendezvous_) facts.absent = rendezvous_->absent();
  return facts;
}

}  // namespace fairring
