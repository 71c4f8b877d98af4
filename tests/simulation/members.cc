#include "members.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "group/bootstrap.h"
#include "group/member.h"
#include "map_store.h"
#include "memory.h"

namespace fairring::testing {

namespace {

using simulation::ofSeconds;
using std::chrono::milliseconds;

constexpr milliseconds kFirstLook{2};  // at the store; group/rendezvous.h looks likewise
constexpr milliseconds kLongestLook{256};
constexpr std::chrono::seconds kMeeting{20};  // that a rank waits for the others
constexpr std::chrono::seconds kForDead{5};   // that it waits for one that nobody hears any more
// A silent rank is given up at the second beat that finds it silent; a channel's end waits for a last word; a
// connection that stays away may have been begun just before.
constexpr std::chrono::seconds kSlack{6};
constexpr const char* kName = "job";

}  // namespace

class Members::Store final : public MapStore {
 public:
  Store(Map& map, const bool& isLost) : MapStore(map), isLost_(isLost) {}

 private:
  Turn begin() override {
    if (isLost_) throw Failure(makeError(ErrorKind::Connection, "the store is gone"));
    return {};
  }

  const bool& isLost_;
};

struct Members::Self {
  int rank = 0;
  Departures departures;
  std::unique_ptr<Acceptor> acceptor;
  std::shared_ptr<GroupEndpoint> endpoint;
  std::unique_ptr<Bootstrap> bootstrap;
  Time meetingEnds{0};
  std::optional<Time> deadSince;  // a rank that had come; as far as this one has seen
  std::shared_ptr<Member> member;
  std::vector<Call> waiting;  // for the member
  Error error;                // the first
  bool hasJoined = false;
  bool isLeaving = false;
};

Members::Members(const Script& script, const std::vector<Place>& places)
    : script_(script), store_(std::make_unique<Store>(stored_, isStoreLost_)), processes_(script, places) {
  for (int rank = 0; rank < world(); ++rank) {
    selves_.push_back(std::make_unique<Self>());
    selves_.back()->rank = rank;
    Time late = processes_.someTime();
    for (const Fault& fault : script.faults) {
      const Time amount = ofSeconds(static_cast<double>(fault.amount) * 1e-6);
      if (fault.kind == Fault::Kind::Late && fault.who == rank) late += amount;
      if (fault.kind == Fault::Kind::Idle && fault.who == rank) processes_.lateUntil(amount);
    }
    processes_.lateUntil(late);
    processes_.at(late, [this, rank] { in(rank, [this](Self& self) { begin(self); }); });
  }
}

Members::~Members() {
  isOver_ = true;
  for (const auto& self : selves_) processes_.inspect(self->rank, [this, &self] { close(*self); });
}

Members::Time Members::timeout() const { return milliseconds(script_.heartbeatMs); }

void Members::in(int rank, std::function<void(Self&)> task) {
  processes_.in(rank, [this, rank, task = std::move(task)] { task(self(rank)); });
}

// ---- what a process does

void Members::begin(Self& self) {
  self.meetingEnds = now() + kMeeting;
  const BootstrapSteps steps{
      [this, &self](std::int64_t generation, const Secret& secret) { return listen(self, generation, secret); },
      [&self] { self.acceptor->remove(self.endpoint); },
      [](const std::vector<RankFacts>& facts) {
        checkSettings(facts);
        checkAddresses(facts);
      },
      [this](int, const RankFacts& facts) {
        return !processes_.sockets().listensAt(tcpAddress(facts.address(), facts.port));
      }};
  try {
    self.bootstrap =
        std::make_unique<Bootstrap>(*store_, BootstrapOptions{kName, self.rank, world(), ""}, steps, self.departures);
  } catch (const Failure& failure) {
    return failed(self, failure.error());
  }
  meet(self, kFirstLook);
}

RankFacts Members::listen(Self& self, std::int64_t generation, const Secret& secret) {
  if (!self.acceptor) self.acceptor = processes_.listen(self.rank);
  self.endpoint = std::make_shared<GroupEndpoint>(makeGroupId(secret, concat(kName, generation)), secret, self.rank);
  self.acceptor->add(self.endpoint);
  return processes_.factsOf(self.rank, *self.acceptor);
}

// As group/rendezvous.h looks for ranks.
void Members::meet(Self& self, Time pause) {
  Bootstrap::Look look{};
  try {
    look = self.bootstrap->look(*store_);
    if (look.state == Bootstrap::State::Missing && now() >= self.meetingEnds)
      look.ranks = self.bootstrap->missing(*store_);
  } catch (const Failure& failure) {
    return failed(self, failure.error());
  }
  if (look.state == Bootstrap::State::Met) return join(self);
  if (look.state != Bootstrap::State::Dead) self.deadSince.reset();
  if (look.state == Bootstrap::State::Dead && !self.deadSince) self.deadSince = now();
  std::string ranks;
  for (const int rank : look.ranks) ranks += concat(ranks.empty() ? "" : ", ", "rank ", rank, " (somewhere)");
  if (self.deadSince && now() - *self.deadSince >= kForDead)
    return failed(self, makeError(ErrorKind::PeerDied, ranks, " died before the group was connected"));
  if (now() >= self.meetingEnds) return failed(self, makeError(ErrorKind::Timeout, ranks, " did not come"));
  processes_.at(now() + pause, [this, &self, pause] {
    in(self.rank, [this, pause](Self& here) { meet(here, std::min<Time>(2 * pause, kLongestLook)); });
  });
}

void Members::join(Self& self) {
  self.member = processes_.open(self.rank, self.endpoint,
                                {.name = kName,
                                 .rank = self.rank,
                                 .tuning = {.connectTimeout = milliseconds(script_.heartbeatMs)},
                                 .transports = {},
                                 .failed = [this, &self](const Error& error) { failed(self, error); },
                                 .lookForFailure = [this, &self](const auto& found) { found(lookForFailure(self)); }},
                                self.bootstrap->facts());
  self.hasJoined = true;
  for (Call& call : std::exchange(self.waiting, {})) give(self, std::move(call));
  if (self.isLeaving) leave(self);
}

void Members::submit(int rank, Call call, std::uint64_t number) {
  call.signature = {"call " + std::to_string(number), number};
  call.timeout = milliseconds(script_.timeoutMs);
  call.done = [this, rank, done = std::move(call.done)](const Error& error) {
    const AmpleMemory memory;
    if (!isOver_ && !processes_.isGone(rank)) done(error);
  };
  auto shared = std::make_shared<Call>(std::move(call));
  in(rank, [this, shared](Self& self) { give(self, std::move(*shared)); });
}

void Members::give(Self& self, Call call) {
  if (!self.member && self.error) return call.done(self.error);
  if (!self.member) return self.waiting.push_back(std::move(call));
  processes_.submit(self.rank, self.member, std::move(call));
}

// Ranks that come later learn of it in the store.
void Members::failed(Self& self, const Error& error) {
  const AmpleMemory memory;
  if (self.error) return;
  self.error = error;
  if (self.member && !isStoreLost_) store_->compareSet(self.bootstrap->errorKey(), "", error.text());
  for (const Call& call : std::exchange(self.waiting, {})) call.done(error);
}

Error Members::lookForFailure(const Self& self) {
  const AmpleMemory memory;
  const BootstrapOptions options{kName, self.rank, world(), ""};
  return isStoreLost_ ? Error() : Bootstrap::failureIn(*store_, self.bootstrap->errorKey(), options);
}

void Members::callsAreOver(int rank) {
  const Time soon = now() + processes_.someTime();
  processes_.at(soon, [this, rank] {
    in(rank, [this](Self& self) {
      if (!std::exchange(self.isLeaving, true) && (self.member || self.error)) leave(self);
    });
  });
}

void Members::leave(Self& self) {
  const auto left = [this, &self] { end(self); };
  self.member ? processes_.leave(self.rank, self.member, left) : processes_.in(self.rank, left);
}

void Members::end(Self& self) {
  close(self);
  processes_.end(self.rank);
}

void Members::close(Self& self) {
  if (self.member) processes_.threads(self.rank).slices.runAndWait([&self] { self.member->close(); });
  self.member.reset();
  if (self.acceptor && self.endpoint) self.acceptor->remove(self.endpoint);
  self.acceptor.reset();
}

// ---- the judge

void Members::strike(const Fault& fault) {
  if (fault.kind == Fault::Kind::Lose) isStoreLost_ = true;
  if (fault.kind != Fault::Kind::Late && fault.kind != Fault::Kind::Idle) processes_.strike(fault);
}

bool Members::isDead(int rank) const {
  return processes_.isDead(rank) || processes_.standsStillFor(rank) == simulation::kNever;
}

std::string Members::broken() const { return processes_.isStrangerInside() ? "a stranger is inside" : ""; }

// Also who gave up before it was connected: to those who were further it has ended. Where the store is lost nobody can
// tell those why it has.
bool Members::isToBlame(int rank) const {
  const Self& one = self(rank);
  return processes_.isToBlame(rank) || (processes_.hasEnded(rank) && one.error && (!one.hasJoined || isStoreLost_));
}

bool Members::isIdle(int rank) const {
  return std::ranges::any_of(script_.faults, [&](const Fault& fault) {
    return fault.kind == Fault::Kind::Idle && fault.who == rank && script_.isFatal(fault);
  });
}

// The first rank that it names behind its own is the culprit, or it is cut off from one that is named with it.
std::string Members::wrongInVerdict(const std::vector<int>& named) const {
  if (named.size() < 2) return "it names no culprit";
  const int culprit = named[1];
  if (isDead(culprit) || isIdle(culprit)) return "";
  const bool isCutOff = std::ranges::any_of(named, [&](int one) { return processes_.areCutOff(culprit, one); });
  return isCutOff ? "" : concat("rank ", culprit, " holds nobody up");
}

std::string Members::wrongIn(int rank, const Error& error) const {
  // A peer may have waited for a dead one before it gave up, and only its end tells this rank.
  const Time reaction = script_.timeoutMs > 0 ? milliseconds(script_.timeoutMs) + Inquiry::kTime : 2 * timeout();
  const Time within = kForDead + (self(rank).hasJoined ? reaction + kSlack : Time(kMeeting));
  if (now() > processes_.lastFaultEnds() + within)
    return concat("it comes ", simulation::secondsOf(now() - processes_.lastFaultEnds()), " s after the last fault");
  if (isStoreLost_ && !self(rank).hasJoined) return "";
  const std::vector<int> named = ranksNamedIn(error.text());
  if (named.empty()) return "it names nobody";
  if (error.text().find(": Timed out: ") != std::string::npos) return wrongInVerdict(named);
  // Whoever gave up before looks as dead as the one it waited for.
  if (!self(rank).hasJoined && std::ranges::any_of(named, [this](int one) { return isToBlame(one); })) return "";
  const bool blamesFirst = error.kind() == ErrorKind::PeerDied;
  if (isToBlame(named[0]) || (!blamesFirst && named.size() > 1 && isToBlame(named[1]))) return "";
  if (processes_.areCutOff(named[0], named.size() > 1 ? named[1] : rank)) return "";
  return concat("rank ", named[0], " is not to blame");
}

bool Members::step() {
  bool areAllGone = true;
  for (int rank = 0; rank < world(); ++rank) areAllGone = areAllGone && processes_.isGone(rank);
  if (areAllGone || now() > processes_.lastFaultEnds() + 2 * timeout() + kMeeting + Processes::kLeaveTimeout + kSlack)
    return false;
  return processes_.step();
}

bool Members::hasFailed(int rank) const { return static_cast<bool>(self(rank).error); }

std::string Members::unrestOf(int rank) const {
  const Self& one = self(rank);
  if (one.error) return "has failed, though nothing fatal was done: " + one.error.text();
  return processes_.hasEnded(rank) ? "" : "has not left the group, though all of its calls have ended";
}

std::string Members::whomWaitsFor(int rank) {
  const Self& one = self(rank);
  if (!one.member) return " (it has not met the others)";
  std::string peers;
  processes_.inspect(rank, [&] {
    processes_.threads(rank).slices.runAndWait([&] {
      for (const int peer : one.member->trace(0).first.missing) peers += " " + std::to_string(peer);
    });
  });
  return peers;
}

}  // namespace fairring::testing
