#include "processes.h"

#include <algorithm>
#include <regex>
#include <string>
#include <utility>

#include "base/error.h"
#include "memory.h"
#include "simulation/core.h"

namespace fairring::testing {

namespace {

using simulation::Core;
using simulation::kNever;
using simulation::ofSeconds;
using std::chrono::milliseconds;

}  // namespace

std::vector<int> ranksNamedIn(const std::string& error) {
  static const std::regex kRank("rank (\\d+) \\(");
  std::vector<int> ranks;
  for (auto found = std::sregex_iterator(error.begin(), error.end(), kRank); found != std::sregex_iterator(); ++found)
    ranks.push_back(std::stoi((*found)[1]));
  return ranks;
}

struct Processes::Thread {
  Thread(const std::function<Time()>& now, const Time& clockAhead)
      : core({}),
        loop([this, now, &clockAhead] { return Loop::Clock::time_point(std::max(core.time(), now()) + clockAhead); }) {}

  Core core;
  LoopThread loop;
  Time nextTurn = kNever;
  bool isAsleep = true;
};

struct Processes::Process {
  Process(int itsRank, const std::function<Time()>& now)
      : rank(itsRank), slices(now, clockAhead), vitals(now, clockAhead) {}

  bool isGone() const { return isDead || hasEnded; }

  const int rank;
  Time clockAhead{0};  // of everybody else's
  Thread slices;
  Thread vitals;
  Time pausedUntil{0};
  std::uint64_t allocationsLeft = 0;  // until one fails; 0: none does
  bool isDead = false;
  bool hasEnded = false;  // in good order
};

Processes::Processes(const Script& script, const std::vector<Place>& places)
    : script_(script),
      places_(places),
      topology_(places),
      network_(events_, topology_.machineOfEach(), {}),
      surroundings_{.network = network_,
                    .now = [this] { return events_.now(); },
                    .at = [this](Time when, auto event) { events_.at(when, std::move(event)); },
                    .timeOf = [this](int rank) { return timeOf(rank); },
                    .wake = [this](int rank) { wake(rank); },
                    .random = std::mt19937_64(script.seed)},
      sockets_(surroundings_) {
  for (int rank = 0; rank < topology_.world(); ++rank)
    processes_.push_back(std::make_unique<Process>(rank, [this] { return events_.now(); }));
}

Processes::~Processes() = default;

bool Processes::step() {
  if (events_.empty()) return false;
  events_.runNext();
  return true;
}

Processes::Time Processes::timeOf(int rank) const {
  const Process& self = process(rank);
  return &self == acting_ ? std::max(self.slices.core.time(), self.vitals.core.time()) : events_.now();
}

void Processes::in(int rank, std::function<void()> task) {
  Process& self = process(rank);
  if (self.isGone() || self.pausedUntil == kNever) return;
  if (self.pausedUntil > now())
    return events_.at(self.pausedUntil, [this, rank, task = std::move(task)]() mutable { in(rank, std::move(task)); });
  sockets_.act(rank);
  task();
  sockets_.serve(rank);
  scheduleTimers(self);
  wake(rank);
}

void Processes::inspect(int rank, const std::function<void()>& task) {
  sockets_.act(rank);
  task();
}

Threads Processes::threads(int rank) { return {process(rank).slices.loop, process(rank).vitals.loop}; }

std::unique_ptr<Acceptor> Processes::listen(int rank) {
  const std::string address = concat("10.0.0.", 1 + topology_.machineOf(rank));
  return std::make_unique<Acceptor>(process(rank).slices.loop, std::vector{address}, ListenPorts{});
}

RankFacts Processes::factsOf(int rank, const Acceptor& listener) const {
  const Place& place = places_[static_cast<std::size_t>(rank)];
  return {.place = place,
          .hostname = "host-of-" + place.machine,
          .addresses = listener.addresses(),
          .port = listener.port(),
          .settings = "same",
          .rdmaFabric = "",
          .rdmaObstacle = "",
          .siteAddresses = {}};
}

std::shared_ptr<Member> Processes::open(int rank, const std::shared_ptr<GroupEndpoint>& endpoint,
                                        GroupSettings settings, const std::vector<RankFacts>& facts) {
  settings.tuning.totalMemoryBytes = script_.stagingKiB << 10;
  settings.tuning.sliceBytes = script_.sliceKiB << 10;
  settings.tuning.grouping = script_.grouping();
  settings.tuning.heartbeatTimeout = milliseconds(script_.heartbeatMs);
  for (Transport* transport : {&settings.transports.rail, &settings.transports.site})
    transport->lanes = static_cast<std::uint32_t>(std::max<std::uint64_t>(script_.lanes, 1));
  auto member = std::make_shared<Member>(threads(rank), endpoint, std::move(settings), facts);
  threads(rank).slices.loop().post([member] { member->open(); });
  return member;
}

void Processes::submit(int rank, const std::shared_ptr<Member>& member, Call call) {
  const CallRecord entered = member->calls().enter(call.signature);
  auto shared = std::make_shared<Call>(std::move(call));
  threads(rank).slices.loop().post([member, shared, entered] { member->submit(std::move(*shared), entered); });
}

void Processes::leave(int rank, const std::shared_ptr<Member>& member, const std::function<void()>& left) {
  const auto ends = [this, rank, left] { in(rank, left); };
  threads(rank).slices.loop().post([this, member, ends] {
    member->leave([this, ends] {
      const AmpleMemory memory;
      at(now(), ends);
    });
  });
  at(now() + kLeaveTimeout, ends);
}

void Processes::end(int rank) {
  process(rank).hasEnded = true;
  sockets_.died(rank);
}

void Processes::kill(int rank) {
  Process& self = process(rank);
  if (self.isGone()) return;
  self.isDead = true;
  toBlame_.insert(rank);
  sockets_.died(rank);
}

// ---- what goes wrong

void Processes::strike(const Fault& fault) {
  const Time lasts = ofSeconds(static_cast<double>(fault.amount) * 1e-6);
  const bool isForEver = fault.kind == Fault::Kind::Sever || fault.amount >= kForEverMicros;
  switch (fault.kind) {
    case Fault::Kind::Kill: kill(fault.who); break;
    case Fault::Kind::Pause:
      process(fault.who).pausedUntil = std::max(process(fault.who).pausedUntil, isForEver ? kNever : now() + lasts);
      if (script_.isFatal(fault)) toBlame_.insert(fault.who);
      break;
    case Fault::Kind::Slow: process(fault.who).slices.core.slowness = static_cast<double>(fault.amount); break;
    case Fault::Kind::Cut:
    case Fault::Kind::Sever:
      network_.cut(fault.who, fault.other, isForEver ? kNever : now() + lasts);
      if (script_.isFatal(fault)) cutOff_.insert(std::minmax(fault.who, fault.other));
      break;
    case Fault::Kind::Break: sockets_.breakLanes(fault.who); break;
    case Fault::Kind::Refuse:
      sockets_.refuse(fault.who, now() + lasts);
      if (script_.isFatal(fault)) toBlame_.insert(fault.who);
      break;
    case Fault::Kind::Stranger: sockets_.intrude(fault.who, static_cast<Sockets::Intrusion>(fault.other)); break;
    case Fault::Kind::Freeze: freeze(process(fault.who), lasts); break;
    case Fault::Kind::Leap: leap(process(fault.who), lasts); break;
    case Fault::Kind::Starve: starve(process(fault.who), static_cast<std::uint64_t>(fault.amount)); break;
    case Fault::Kind::Lose:
    case Fault::Kind::Late:
    case Fault::Kind::Idle: break;
  }
  const bool isOfClock = fault.kind == Fault::Kind::Freeze || fault.kind == Fault::Kind::Leap;
  if (isOfClock && script_.isFatal(fault)) toBlame_.insert(fault.who);
  const bool ends = !isForEver && fault.kind != Fault::Kind::Slow && fault.kind != Fault::Kind::Leap &&
                    fault.kind != Fault::Kind::Starve;
  lateUntil(now() + (ends ? lasts : Time(0)));
}

// As a machine that is suspended, and whose clock goes on where it stopped.
void Processes::freeze(Process& self, Time lasts) {
  const Time ahead = std::max({self.slices.core.time(), self.vitals.core.time(), now()}) - now();  // read already
  self.pausedUntil = std::max(self.pausedUntil, now() + lasts);
  self.clockAhead -= std::max(lasts - ahead, Time(0));
}

void Processes::leap(Process& self, Time by) {
  self.clockAhead += by;
  if (!self.isGone()) scheduleTimers(self);
}

// When the allocation comes is for the rank to say: that it fails is the fault, and its time counts.
void Processes::starve(Process& self, std::uint64_t allocation) {
  self.allocationsLeft = allocation;
  toBlame_.insert(self.rank);
}

bool Processes::isDead(int rank) const { return process(rank).isDead; }
bool Processes::hasEnded(int rank) const { return process(rank).hasEnded; }
bool Processes::isGone(int rank) const { return process(rank).isGone(); }

Processes::Time Processes::standsStillFor(int rank) const {
  const Time until = process(rank).pausedUntil;
  return until == kNever ? kNever : std::max(until - now(), Time(0));
}

bool Processes::areCutOff(int one, int other) const {
  return cutOff_.contains(std::minmax(topology_.machineOf(one), topology_.machineOf(other)));
}

// ---- the turns of the loops

void Processes::wake(int rank) {
  Process& self = process(rank);
  for (Thread* thread : {&self.slices, &self.vitals})
    schedule(self, *thread, std::max(timeOf(rank), thread->core.time()));
}

void Processes::schedule(Process& self, Thread& thread, Time when) {
  if (self.isGone() || thread.nextTurn <= when) return;
  thread.nextTurn = when;
  events_.at(when, [this, &self, &thread, when] { turn(self, thread, when); });
}

void Processes::turn(Process& self, Thread& thread, Time when) {
  if (self.isGone() || thread.nextTurn != when) return;
  thread.nextTurn = kNever;
  const Time begin = std::max(self.pausedUntil, thread.core.time());
  if (begin > now()) return schedule(self, thread, begin);
  sockets_.act(self.rank);
  acting_ = &self;
  thread.core.begin(now());
  const bool starves = self.allocationsLeft > 0;
  const bool served = [&] {
    const ScarceMemory memory(&self.allocationsLeft);
    return thread.loop.loop().runOnce(milliseconds(0));
  }();
  if (starves && self.allocationsLeft == 0) lateUntil(now());
  if (served) {
    thread.core.charge(thread.core.costs().turnSeconds + (thread.isAsleep ? thread.core.costs().wakeSeconds : 0));
    sockets_.serve(self.rank);
    wake(self.rank);
  }
  acting_ = nullptr;
  thread.isAsleep = !served;
  scheduleTimers(self);
  if (!served || &thread != &self.slices) return;
  for (const int peer : topology_.ranksOf(topology_.machineOf(self.rank))) {  // their doorbells may have been rung
    if (peer != self.rank) wake(peer);
  }
}

void Processes::scheduleTimers(Process& self) {
  for (Thread* thread : {&self.slices, &self.vitals}) {
    const auto timer = thread->loop.loop().firstTimer();
    if (timer != Loop::Clock::time_point::max())
      schedule(self, *thread, std::max(thread->core.time(), Time(timer.time_since_epoch()) - self.clockAhead));
  }
}

}  // namespace fairring::testing
