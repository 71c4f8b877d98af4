#include "members.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <regex>
#include <utility>

#include "base/error.h"
#include "group/bootstrap.h"
#include "group/key_value.h"
#include "group/member.h"
#include "simulation/core.h"

namespace fairring::testing {

namespace {

using simulation::Core;
using simulation::kNever;
using simulation::ofSeconds;
using std::chrono::milliseconds;

constexpr milliseconds kFirstLook{2};  // at the store; backend/membership.h drives it likewise
constexpr milliseconds kLongestLook{256};
constexpr std::chrono::seconds kMeeting{20};       // that a rank waits for the others
constexpr std::chrono::seconds kForDead{5};        // that it waits for one that nobody hears any more
constexpr std::chrono::seconds kLeaveTimeout{30};  // group/group.h waits as long
// A silent rank is given up at the second beat that finds it silent; a channel's end waits for a last word; a
// connection that stays away may have been begun just before.
constexpr std::chrono::seconds kSlack{6};
constexpr const char* kName = "job";

using Now = std::function<simulation::Time()>;

std::vector<int> machinesOf(const Topology& topology) {
  std::vector<int> machines;
  machines.reserve(static_cast<std::size_t>(topology.world()));
  for (int rank = 0; rank < topology.world(); ++rank) machines.push_back(topology.machineOf(rank));
  return machines;
}

std::vector<int> ranksNamedIn(const std::string& text) {
  static const std::regex kRank("rank (\\d+) \\(");
  std::vector<int> ranks;
  for (auto found = std::sregex_iterator(text.begin(), text.end(), kRank); found != std::sregex_iterator(); ++found)
    ranks.push_back(std::stoi((*found)[1]));
  return ranks;
}

}  // namespace

class Members::Store final : public KeyValue {
 public:
  explicit Store(const bool& isLost) : isLost_(isLost) {}
  bool has(const std::string& key) override {
    ask();
    return values_.contains(key);
  }
  std::string get(const std::string& key) override {
    ask();
    return values_.at(key);
  }
  void set(const std::string& key, const std::string& value) override {
    ask();
    values_[key] = value;
  }
  std::string compareSet(const std::string& key, const std::string& expected, const std::string& desired) override {
    ask();
    std::string& value = values_[key];
    if (value == expected) value = desired;
    return value;
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    ask();
    return sums_[key] += amount;
  }

 private:
  void ask() const {
    if (isLost_) throw Failure(makeError(ErrorKind::Connection, "the store is gone"));
  }

  const bool& isLost_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::int64_t> sums_;
};

struct Members::Thread {
  Thread(const Now& now, const simulation::CoreCosts& costs)
      : core(costs), loop([this, now] { return Loop::Clock::time_point(std::max(core.time(), now())); }) {}

  Core core;
  LoopThread loop;
  Time nextTurn = kNever;
  bool isAsleep = true;
};

struct Members::Process {
  Process(int itsRank, const Now& now) : rank(itsRank), slices(now, {}), vitals(now, {}) {}

  bool isGone() const { return isDead || hasEnded; }

  const int rank;
  Thread slices;
  Thread vitals;
  Departures departures;
  std::unique_ptr<Acceptor> acceptor;
  std::shared_ptr<GroupEndpoint> endpoint;
  std::unique_ptr<Bootstrap> bootstrap;
  Time meetingEnds{0};
  std::optional<Time> deadSince;  // a rank that had come; as far as this one has seen
  std::shared_ptr<Member> member;
  std::vector<Call> waiting;  // for the member
  Error error;                // the first
  Time pausedUntil{0};
  bool hasJoined = false;
  bool isLeaving = false;
  bool isDead = false;
  bool hasEnded = false;  // in good order
};

Members::Members(const Script& script, const std::vector<Place>& places)
    : script_(script),
      places_(places),
      topology_(places),
      network_(events_, machinesOf(topology_), {}),
      surroundings_{.network = network_,
                    .now = [this] { return events_.now(); },
                    .at = [this](Time when, auto event) { events_.at(when, std::move(event)); },
                    .timeOf = [this](int rank) { return timeOf(rank); },
                    .wake = [this](int rank) { wake(rank); },
                    .random = std::mt19937_64(script.seed)},
      sockets_(surroundings_),
      store_(std::make_unique<Store>(isStoreLost_)) {
  for (int rank = 0; rank < topology_.world(); ++rank) {
    processes_.push_back(std::make_unique<Process>(rank, [this] { return events_.now(); }));
    Time late = surroundings_.someTime();
    for (const Fault& fault : script.faults) {
      if (fault.kind == Fault::Kind::Late && fault.who == rank)
        late += ofSeconds(static_cast<double>(fault.amount) * 1e-6);
    }
    promised_ = std::max(promised_, late);
    events_.at(late, [this, rank] { in(rank, [this](Process& self) { begin(self); }); });
  }
}

Members::~Members() {
  isOver_ = true;
  for (const auto& self : processes_) {
    sockets_.act(self->rank);
    close(*self);
  }
}

Members::Time Members::timeout() const { return milliseconds(script_.heartbeatMs); }

Members::Time Members::timeOf(int rank) const {
  const Process& self = process(rank);
  return &self == acting_ ? std::max(self.slices.core.time(), self.vitals.core.time()) : events_.now();
}

// ---- what a process does

void Members::in(int rank, std::function<void(Process&)> task) {
  Process& self = process(rank);
  if (self.isGone()) return;
  if (self.pausedUntil > now()) {
    return events_.at(self.pausedUntil, [this, rank, task = std::move(task)]() mutable { in(rank, std::move(task)); });
  }
  sockets_.act(rank);
  task(self);
  sockets_.serve(rank);
  scheduleTimers(self);
  wake(rank);
}

void Members::begin(Process& self) {
  self.meetingEnds = now() + kMeeting;
  const BootstrapSteps steps{
      [this, &self](std::int64_t generation, const Secret& secret) { return listen(self, generation, secret); },
      [&self] { self.acceptor->remove(self.endpoint); },
      [](const std::vector<RankFacts>& facts) {
        checkSettings(facts);
        checkAddresses(facts);
      },
      [this](const RankFacts& facts) { return !sockets_.listensAt(tcpAddress(facts.address(), facts.port)); }};
  try {
    self.bootstrap = std::make_unique<Bootstrap>(*store_, BootstrapOptions{kName, self.rank, topology_.world(), ""},
                                                 steps, self.departures);
  } catch (const Failure& failure) {
    return failed(self, failure.error());
  }
  meet(self, kFirstLook);
}

RankFacts Members::listen(Process& self, std::int64_t generation, const Secret& secret) {
  const int machine = machineOf(self.rank);
  const std::string address = concat("10.0.0.", 1 + machine);
  if (!self.acceptor) self.acceptor = std::make_unique<Acceptor>(self.slices.loop, std::vector{address}, ListenPorts{});
  self.endpoint = std::make_shared<GroupEndpoint>(makeGroupId(secret, concat(kName, generation)), secret, self.rank);
  self.acceptor->add(self.endpoint);
  const Place& place = places_[static_cast<std::size_t>(self.rank)];
  return {.place = place,
          .hostname = "host-of-" + place.machine,
          .addresses = {address},
          .port = self.acceptor->port(),
          .settings = "same",
          .rdmaFabric = "",
          .rdmaObstacle = "",
          .siteAddresses = {}};
}

// As backend/membership.h drives it.
void Members::meet(Process& self, Time pause) {
  Bootstrap::Look look{};
  try {
    look = self.bootstrap->look(*store_);
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
  events_.at(now() + pause, [this, &self, pause] {
    in(self.rank, [this, pause](Process& here) { meet(here, std::min<Time>(2 * pause, kLongestLook)); });
  });
}

void Members::join(Process& self) {
  GroupSettings settings{.name = kName,
                         .rank = self.rank,
                         .tuning = {.totalMemoryBytes = script_.stagingKiB << 10,
                                    .sliceBytes = script_.sliceKiB << 10,
                                    .heartbeatTimeout = milliseconds(script_.heartbeatMs),
                                    .connectTimeout = milliseconds(script_.heartbeatMs)},
                         .transports = {},
                         .makeTensorPipe = nullptr,
                         .failed = [this, &self](const Error& error) { failed(self, error); }};
  for (Transport* transport : {&settings.transports.rail, &settings.transports.site})
    transport->lanes = static_cast<std::uint32_t>(std::max<std::uint64_t>(script_.lanes, 1));
  self.member = std::make_shared<Member>(Threads{self.slices.loop, self.vitals.loop}, self.endpoint, settings,
                                         self.bootstrap->facts());
  self.slices.loop.loop().post([member = self.member] { member->open(); });
  self.hasJoined = true;
  for (Call& call : std::exchange(self.waiting, {})) give(self, std::move(call));
  if (self.isLeaving) leave(self);
}

void Members::submit(int rank, Call call, std::uint64_t number) {
  call.signature = {"call " + std::to_string(number), number};
  call.done = [this, &self = process(rank), done = std::move(call.done)](const Error& error) {
    if (!isOver_ && !self.isGone()) done(error);
  };
  auto shared = std::make_shared<Call>(std::move(call));
  in(rank, [this, shared](Process& self) { give(self, std::move(*shared)); });
}

void Members::give(Process& self, Call call) {
  if (!self.member && self.error) return call.done(self.error);
  if (!self.member) return self.waiting.push_back(std::move(call));
  const CallLog::Entry entry = self.member->callLog().record(call.signature);
  auto shared = std::make_shared<Call>(std::move(call));
  self.slices.loop.loop().post([member = self.member, shared, entry] { member->submit(std::move(*shared), entry); });
}

// Ranks that come later learn of it in the store.
void Members::failed(Process& self, const Error& error) {
  if (self.error) return;
  self.error = error;
  if (self.member && !isStoreLost_) store_->set(self.bootstrap->errorKey(), error.text());
  for (const Call& call : std::exchange(self.waiting, {})) call.done(error);
}

void Members::callsAreOver(int rank) {
  const Time soon = now() + surroundings_.someTime();
  events_.at(soon, [this, rank] {
    in(rank, [this](Process& self) {
      if (!std::exchange(self.isLeaving, true) && (self.member || self.error)) leave(self);
    });
  });
}

void Members::leave(Process& self) {
  const auto ends = [this, rank = self.rank] { in(rank, [this](Process& left) { end(left); }); };
  if (!self.member) return ends();
  self.slices.loop.loop().post(
      [this, member = self.member, ends] { member->leave([this, ends] { events_.at(now(), ends); }); });
  events_.at(now() + kLeaveTimeout, ends);
}

void Members::end(Process& self) {
  close(self);
  self.hasEnded = true;
  sockets_.died(self.rank);
}

void Members::close(Process& self) {
  if (self.member) self.slices.loop.runAndWait([&self] { self.member->close(); });
  self.member.reset();
  if (self.acceptor && self.endpoint) self.acceptor->remove(self.endpoint);
  self.acceptor.reset();
}

// ---- what goes wrong

void Members::strike(const Fault& fault) {
  const Time lasts = ofSeconds(static_cast<double>(fault.amount) * 1e-6);
  const bool isForEver = fault.kind == Fault::Kind::Sever;
  switch (fault.kind) {
    case Fault::Kind::Kill: {
      Process& self = process(fault.who);
      if (self.isGone()) return;
      self.isDead = true;
      toBlame_.insert(fault.who);
      sockets_.died(fault.who);
      break;
    }
    case Fault::Kind::Pause:
      process(fault.who).pausedUntil = std::max(process(fault.who).pausedUntil, now() + lasts);
      if (script_.isFatal(fault)) toBlame_.insert(fault.who);
      break;
    case Fault::Kind::Slow: process(fault.who).slices.core.slowness = static_cast<double>(fault.amount); break;
    case Fault::Kind::Cut:
    case Fault::Kind::Sever:
      network_.cut(fault.who, fault.other, isForEver ? kNever : now() + lasts);
      if (script_.isFatal(fault)) cutOff_.insert(std::minmax(fault.who, fault.other));
      break;
    case Fault::Kind::Break: sockets_.breakLanes(fault.who); break;
    case Fault::Kind::Lose: isStoreLost_ = true; break;
    case Fault::Kind::Late: return;
  }
  promised_ = std::max(promised_, now() + (isForEver || fault.kind == Fault::Kind::Slow ? Time(0) : lasts));
}

// Also who gave up before it was connected: to those who were further it has ended.
bool Members::isToBlame(int rank) const {
  const Process& self = process(rank);
  return toBlame_.contains(rank) || (self.hasEnded && self.error && !self.hasJoined);
}

bool Members::areCutOff(int one, int other) const {
  return cutOff_.contains(std::minmax(machineOf(one), machineOf(other)));
}

std::string Members::wrongIn(int rank, const Error& error) const {
  const Time within = process(rank).hasJoined ? 2 * timeout() + kSlack : Time(kMeeting + kForDead);
  if (now() > promised_ + within)
    return concat("it comes ", simulation::secondsOf(now() - promised_), " s after the last fault");
  if (isStoreLost_ && !process(rank).hasJoined) return "";
  const std::vector<int> named = ranksNamedIn(error.text());
  if (named.empty()) return "it names nobody";
  // Whoever gave up before looks as dead as the one it waited for.
  if (!process(rank).hasJoined && std::ranges::any_of(named, [this](int one) { return isToBlame(one); })) return "";
  const bool blamesFirst = error.kind() == ErrorKind::PeerDied;
  if (isToBlame(named[0]) || (!blamesFirst && named.size() > 1 && isToBlame(named[1]))) return "";
  if (areCutOff(named[0], named.size() > 1 ? named[1] : rank)) return "";
  return concat("rank ", named[0], " is not to blame");
}

// ---- the turns of the loops

bool Members::step() {
  const bool areAllGone = std::ranges::all_of(processes_, [](const auto& self) { return self->isGone(); });
  if (areAllGone || events_.empty() || now() > promised_ + 2 * timeout() + kMeeting + kLeaveTimeout + kSlack)
    return false;
  events_.runNext();
  return true;
}

void Members::wake(int rank) {
  Process& self = process(rank);
  for (Thread* thread : {&self.slices, &self.vitals})
    schedule(self, *thread, std::max(timeOf(rank), thread->core.time()));
}

void Members::schedule(Process& self, Thread& thread, Time when) {
  if (self.isGone() || thread.nextTurn <= when) return;
  thread.nextTurn = when;
  events_.at(when, [this, &self, &thread, when] { turn(self, thread, when); });
}

void Members::turn(Process& self, Thread& thread, Time when) {
  if (self.isGone() || thread.nextTurn != when) return;
  thread.nextTurn = kNever;
  const Time begin = std::max(self.pausedUntil, thread.core.time());
  if (begin > now()) return schedule(self, thread, begin);
  sockets_.act(self.rank);
  acting_ = &self;
  thread.core.begin(now());
  const bool served = thread.loop.loop().runOnce(milliseconds(0));
  if (served) {
    thread.core.charge(thread.core.costs().turnSeconds + (thread.isAsleep ? thread.core.costs().wakeSeconds : 0));
    sockets_.serve(self.rank);
    wake(self.rank);
  }
  acting_ = nullptr;
  thread.isAsleep = !served;
  scheduleTimers(self);
  if (!served || &thread != &self.slices) return;
  for (const int peer : topology_.ranksOf(machineOf(self.rank))) {  // their doorbells may have been rung
    if (peer != self.rank) wake(peer);
  }
}

void Members::scheduleTimers(Process& self) {
  for (Thread* thread : {&self.slices, &self.vitals}) {
    const auto timer = thread->loop.loop().firstTimer();
    if (timer != Loop::Clock::time_point::max())
      schedule(self, *thread, std::max(thread->core.time(), Time(timer.time_since_epoch())));
  }
}

bool Members::isDead(int rank) const { return process(rank).isDead; }
bool Members::hasFailed(int rank) const { return static_cast<bool>(process(rank).error); }

std::string Members::unrestOf(int rank) const {
  const Process& self = process(rank);
  if (self.error) return "has failed, though nothing fatal was done: " + self.error.text();
  return self.hasEnded ? "" : "has not left the group, though all of its calls have ended";
}

std::string Members::whomWaitsFor(int rank) {
  Process& self = process(rank);
  if (!self.member) return " (it has not met the others)";
  std::string peers;
  sockets_.act(rank);
  self.slices.loop.runAndWait([&] {
    for (const int peer : self.member->trace(0).first.missing) peers += " " + std::to_string(peer);
  });
  return peers;
}

}  // namespace fairring::testing
