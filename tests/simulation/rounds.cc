#include "rounds.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "engine/all_to_all_call.h"
#include "group/member.h"

namespace fairring::testing {

namespace {

using simulation::ofSeconds;
using simulation::secondsOf;
using std::chrono::milliseconds;

constexpr milliseconds kMeeting{10'000};       // that a meeting may take
constexpr milliseconds kAfterMeeting{10'000};  // for a neighbour to be connected beyond that; backend/reconfiguring.cc
constexpr milliseconds kCall{60'000};
constexpr std::chrono::seconds kSlack{8};   // of a channel's end, of a beat, and of what is slow
constexpr std::chrono::seconds kHang{200};  // that a round may take after the last fault, at most
constexpr int kMostLastRounds = 5;
constexpr std::int64_t kPrime = 1'000'003;
constexpr std::uint64_t kMostEvents = 20'000'000;
constexpr std::array<std::size_t, 3> kSizes{1, 1000, 20'000};

}  // namespace

// A group as one rank has it.
struct Rounds::Group {
  GroupId id{};
  std::string name;
  int rank = 0;
  std::vector<int> members;  // processes, by rank
  std::vector<RankFacts> facts;
  Secret ancestor{};           // that of the group that met by handles, and whose ranks these are there
  std::vector<int> ancestors;  // by rank
  std::shared_ptr<Lineage> lineage;
  std::uint64_t groupsBefore = 0;
  std::shared_ptr<GroupEndpoint> endpoint;
  std::shared_ptr<Member> member;

  int size() const { return static_cast<int>(members.size()); }
  Mark mark() const { return {groupsBefore, member->calls().count()}; }
};

struct Rounds::Player {
  int process = 0;
  std::string token = newToken();
  std::unique_ptr<Acceptor> acceptor;
  std::shared_ptr<Lineage> lineage = std::make_shared<Lineage>();
  std::shared_ptr<Group> group;
  std::vector<std::shared_ptr<Group>> groups;      // this one, and those that it is making, or leaving
  std::vector<std::pair<Mark, std::size_t>> kept;  // the states that it may have to go back to
  std::size_t agreed = 0;                          // steps, by the last meeting that has ended well here
  bool hasMet = false;                             // in this round
  bool hasReported = false;
  Error error;
};

Rounds::Rounds(const Script& script, const std::vector<Place>& places)
    : script_(script), processes_(script, places), random_(script.seed * 7919 + 1) {
  const int world = processes_.topology().world();
  for (int process = 0; process < world; ++process) {
    players_.push_back(std::make_unique<Player>());
    Player& self = *players_.back();
    self.process = process;
    processes_.inspect(process, [&] { self.acceptor = processes_.listen(process); });
  }
  members_.resize(static_cast<std::size_t>(world));
  std::iota(members_.begin(), members_.end(), 0);
  std::ranges::shuffle(members_, random_);
  if (!script_.shrinks && world > 3) members_.resize(static_cast<std::size_t>(world) - random_() % 3);
}

Rounds::~Rounds() {
  isOver_ = true;
  for (const auto& self : players_) {
    processes_.inspect(self->process, [&] {
      for (const auto& group : self->groups) {
        processes_.threads(self->process).slices.runAndWait([&] { group->member->close(); });
        self->acceptor->remove(group->endpoint);
      }
      self->group.reset();
      self->groups.clear();
      self->acceptor.reset();
    });
  }
}

template <class... Parts>
void Rounds::broke(const Parts&... parts) {
  if (verdict_.broken.empty()) verdict_.broken = concat("round ", round_, ": ", parts...);
}

// ---- what a process does

void Rounds::enter(Player& self) { script_.shrinks&& self.group ? shrink(self) : reconfigure(self); }

void Rounds::reconfigure(Player& self) {
  Roster roster = rosterOf(handles_, self.token, round_ + 1, Secret{});
  if (self.group) {
    std::uint64_t complete = 0;
    processes_.threads(self.process).slices.runAndWait([&] { complete = self.group->member->settle(); });
    self.lineage->leave(self.group->id, complete);
    leave(self, std::exchange(self.group, nullptr));
  }
  self.group = makeGroup(self, roster, concat("job (uuid ", round_ + 1, ")"));
  self.group->members = members_;
  self.group->ancestor = roster.secret;
  self.group->ancestors.resize(members_.size());
  std::iota(self.group->ancestors.begin(), self.group->ancestors.end(), 0);
  meet(self, self.group);
}

std::shared_ptr<Rounds::Group> Rounds::makeGroup(Player& self, const Roster& roster, const std::string& name) {
  const auto group = std::make_shared<Group>();
  self.groups.push_back(group);
  group->id = makeGroupId(roster.secret, name);
  group->name = name;
  group->rank = roster.rank;
  group->facts = roster.facts;
  group->lineage = self.lineage;
  group->groupsBefore = self.lineage->groupsLeft();
  group->endpoint = std::make_shared<GroupEndpoint>(group->id, roster.secret, roster.rank);
  self.acceptor->add(group->endpoint);
  group->member = processes_.open(self.process, group->endpoint,
                                  {.name = name,
                                   .rank = roster.rank,
                                   .tuning = {.connectTimeout = kMeeting + kAfterMeeting},
                                   .transports = {},
                                   .failed = nullptr},
                                  roster.facts);
  return group;
}

// In the background, as the end of a membership.
void Rounds::leave(Player& self, const std::shared_ptr<Group>& group) {
  // The member's own task must not keep it alive.
  processes_.leave(self.process, group->member, [this, &self, weak = std::weak_ptr(group)] {
    const auto left = weak.lock();
    if (isOver_ || !left || std::erase(self.groups, left) == 0) return;
    processes_.threads(self.process).slices.runAndWait([&] { left->member->close(); });
    self.acceptor->remove(left->endpoint);
  });
}

void Rounds::shrink(Player& self) {
  std::vector<int> ranks;  // in the group that is shrunk
  for (const int member : members_) {
    const auto found = std::ranges::find(self.group->members, member);
    ranks.push_back(static_cast<int>(found - self.group->members.begin()));
  }
  std::ranges::sort(ranks);
  if (static_cast<int>(ranks.size()) == self.group->size()) return catchUp(self);
  std::vector<int> ancestors;
  ancestors.reserve(ranks.size());
  for (const int rank : ranks) ancestors.push_back(self.group->ancestors.at(static_cast<std::size_t>(rank)));
  std::string purpose = concat("attempt ", self.lineage->countAttempt(ancestors), " of ranks");
  for (const int rank : ancestors) purpose += concat(" ", rank);
  Loop& loop = processes_.threads(self.process).slices.loop();
  loop.post([this, &self, group = self.group, ranks, purpose] {
    if (aborts_) group->member->fail(makeError(ErrorKind::Aborted, "rank ", group->rank, " shrank its group"));
    group->member->whenIdle([this, &self, ranks, purpose] {
      processes_.at(processes_.timeOf(self.process), [this, &self, ranks, purpose] {
        processes_.in(self.process, [this, &self, ranks, purpose] { shrinkOnceIdle(self, ranks, purpose); });
      });
    });
  });
}

void Rounds::shrinkOnceIdle(Player& self, const std::vector<int>& ranks, const std::string& purpose) {
  const std::shared_ptr<Group> parent = self.group;
  Roster roster{
      .facts = {}, .secret = derivedSecret(parent->ancestor, "members", purpose), .ancestor = parent->ancestor};
  std::vector<int> members;
  std::vector<int> ancestors;
  for (const int rank : ranks) {
    const auto at = static_cast<std::size_t>(rank);
    if (rank == parent->rank) roster.rank = static_cast<int>(members.size());
    roster.facts.push_back(parent->facts.at(at));
    members.push_back(parent->members.at(at));
    ancestors.push_back(parent->ancestors.at(at));
  }
  std::uint64_t complete = 0;
  processes_.threads(self.process).slices.runAndWait([&] { complete = parent->member->settle(); });
  parent->lineage->leave(parent->id, complete);
  self.lineage = parent->lineage->descendant();
  const auto group = makeGroup(self, roster, concat("job (shrunk to ", ranks.size(), " ranks)"));
  group->members = std::move(members);
  group->ancestor = roster.ancestor;
  group->ancestors = std::move(ancestors);
  meet(self, group);
}

// backend/reconfiguring.cc's meetMembers, and what follows.
void Rounds::meet(Player& self, const std::shared_ptr<Group>& group) {
  const auto size = static_cast<std::size_t>(group->size());
  const auto own = std::make_shared<std::array<std::byte, GroupHistory::kBytes>>(group->lineage->told());
  const auto all = std::make_shared<std::vector<std::byte>>(size * own->size());
  Call call{.pattern = Pattern::AllGather, .timeout = kMeeting, .signature = {"reconfigure", 1}, .done = nullptr};
  for (std::size_t rank = 0; rank < size; ++rank) {
    const bool isOwn = static_cast<int>(rank) == group->rank;
    call.blocks.push_back({{.from = isOwn ? own->data() : nullptr,
                            .to = all->data() + rank * own->size(),
                            .elements = own->size(),
                            .reduction = {.dtype = DType::UInt8}}});
  }
  call.done = [group, own, all](const Error& error) {
    if (!error) group->lineage->learn(group->rank, *all);
  };
  make(self, group, std::move(call), [this, &self, group](const Error& error) {
    const bool isShrunk = group != self.group;
    if (!error) {
      if (isShrunk) leave(self, std::exchange(self.group, group));
      return goBack(self);
    }
    if (isShrunk) {  // the next attempt starts from the group before
      std::uint64_t complete = 0;
      processes_.threads(self.process).slices.runAndWait([&] { complete = group->member->settle(); });
      leave(self, group);
      self.lineage = self.group->lineage;
      self.lineage->leave(group->id, complete);
    }
    report(self, error);
  });
}

void Rounds::goBack(Player& self) {
  if (const auto last = self.group->lineage->lastComplete()) {
    answers_.push_back(last->ofRank);
    if (answers_.back() != answers_.front()) broke("process ", self.process, " has learnt something else than others");
    std::erase_if(self.kept, [&](const auto& one) { return !last->here || one.first > *last->here; });
    checkPart(self, last->here.has_value());
    checkAgreed(self, last->here.has_value());
  } else if (!comrades_.empty()) {
    broke("process ", self.process, " has learnt of no group before this one");
  }
  if (!self.kept.empty()) {
    went_.push_back(self.kept.back().second);
    if (went_.back() != went_.front()) {
      broke("process ", self.process, " goes back to ", states_[went_.back()].log.size(), " steps, another one to ",
            states_[went_.front()].log.size(), ", or to others");
    }
  }
  catchUp(self);
}

// All take the state of one that has some.
void Rounds::catchUp(Player& self) {
  self.hasMet = true;
  if (!self.kept.empty()) beginning_ = states_[self.kept.back().second].log.size();
  const auto group = self.group;
  const auto has = std::make_shared<Numbers>(static_cast<std::size_t>(group->size()));
  (*has)[static_cast<std::size_t>(group->rank)] = self.kept.empty() ? 0 : 1;
  Call call{
      .operands = {{has->data(), has->size(), {.dtype = DType::Int64}}}, .signature = {"has", 2}, .done = nullptr};
  make(self, group, std::move(call), [this, &self, has](const Error& error) {
    if (error) return report(self, error);
    const auto first = std::ranges::find(*has, 1);
    if (first != has->end()) return takeStateOf(self, static_cast<int>(first - has->begin()));
    keep(self, 0);
    takeStep(self, 0);
  });
}

void Rounds::takeStateOf(Player& self, int root) {
  const auto group = self.group;
  const auto told = std::make_shared<Numbers>(2);
  const bool isRoot = group->rank == root;
  if (isRoot) {
    const std::size_t state = self.kept.back().second;
    *told = {static_cast<std::int64_t>(state), states_[state].number};
  }
  Call call{.pattern = Pattern::Broadcast, .root = root, .signature = {"state", 3}, .done = nullptr};
  call.blocks.push_back({{.from = isRoot ? told->data() : nullptr,
                          .to = isRoot ? nullptr : told->data(),
                          .elements = told->size(),
                          .reduction = {.dtype = DType::Int64}}});
  make(self, group, std::move(call), [this, &self, told](const Error& error) {
    if (error) return report(self, error);
    const auto state = static_cast<std::size_t>((*told)[0]);
    if (state >= states_.size() || states_[state].number != (*told)[1])
      return broke("process ", self.process, " was told a state that there is not");
    if (!self.kept.empty() && self.kept.back().second != state)
      broke("process ", self.process, " has another state than the one that all take");
    keep(self, state);
    takeStep(self, 0);
  });
}

void Rounds::keep(Player& self, std::size_t state) { self.kept.emplace_back(self.group->mark(), state); }

Rounds::Step Rounds::stepAfter(std::size_t state, std::size_t members) const {
  static constexpr std::array kPatterns{Pattern::AllReduce, Pattern::Broadcast,     Pattern::AllGather,
                                        Pattern::AllToAll,  Pattern::ReduceScatter, Pattern::Reduce};
  const std::size_t number = states_[state].log.size();
  return {.pattern = kPatterns[static_cast<std::size_t>(states_[state].number) % kPatterns.size()],
          .root = static_cast<int>(number % members),
          .elements = kSizes[number % kSizes.size()]};
}

void Rounds::takeStep(Player& self, int index) {
  if (index == steps_) return report(self, {});
  if (index == stepsBegun_) strikeIn(++stepsBegun_);
  const auto group = self.group;
  const std::size_t state = self.kept.back().second;
  const auto size = static_cast<std::size_t>(group->size());
  const Step step = stepAfter(state, size);
  const auto tensors = std::make_shared<Tensors>();
  tensors->from.assign(isByRank(step.pattern) ? size : 1, Numbers(step.elements, shareOf(self.process, state)));
  tensors->to = tensors->from;
  make(self, group, callOf(step, group->rank, *tensors), [this, &self, index, step, tensors](const Error& error) {
    if (error) return report(self, error);
    const int rank = self.group->rank;
    if (step.pattern == Pattern::ReduceScatter) tensors->to = {tensors->to[static_cast<std::size_t>(rank)]};
    if (step.pattern == Pattern::Broadcast && rank == step.root) tensors->to = tensors->from;
    step.pattern == Pattern::Reduce ? broadcastSum(self, index, tensors) : stepIsDone(self, index, *tensors);
  });
}

Call Rounds::callOf(const Step& step, int rank, Tensors& tensors) {
  const Reduction reduction{.dtype = DType::Int64};
  const bool isRoot = rank == step.root;
  Call call{
      .pattern = step.pattern, .signature = {concat("step of ", step.elements), step.elements + 10}, .done = nullptr};
  if (hasRoot(step.pattern)) call.root = step.root;
  std::vector<CellPair> cells;
  for (std::size_t block = 0; block < tensors.from.size(); ++block) {
    std::int64_t* const from = tensors.from[block].data();
    std::int64_t* const to = tensors.to[block].data();
    const bool isOwn = static_cast<int>(block) == rank;
    const std::uint64_t bytes = step.elements * sizeof(std::int64_t);
    switch (step.pattern) {
      case Pattern::AllReduce: call.operands.push_back({to, step.elements, reduction}); break;
      case Pattern::AllToAll: cells.push_back({from, bytes, to, bytes}); break;
      case Pattern::Broadcast:
        call.blocks.push_back({{isRoot ? from : nullptr, isRoot ? nullptr : to, step.elements, reduction}});
        break;
      case Pattern::Reduce: call.blocks.push_back({{from, isRoot ? to : nullptr, step.elements, reduction}}); break;
      case Pattern::AllGather: call.blocks.push_back({{isOwn ? from : nullptr, to, step.elements, reduction}}); break;
      default: call.blocks.push_back({{from, isOwn ? to : nullptr, step.elements, reduction}}); break;
    }
  }
  if (!cells.empty()) call.parts = std::make_shared<AllToAllCall>(std::move(cells), rank);
  return call;
}

// The second half of a step that reduces to one rank.
void Rounds::broadcastSum(Player& self, int index, const std::shared_ptr<Tensors>& tensors) {
  const auto group = self.group;
  const Step step = stepAfter(self.kept.back().second, static_cast<std::size_t>(group->size()));
  const bool isRoot = group->rank == step.root;
  Numbers& sum = tensors->to[0];
  Call call{.pattern = Pattern::Broadcast, .root = step.root, .signature = {"sum", 4}, .done = nullptr};
  call.blocks.push_back(
      {{isRoot ? sum.data() : nullptr, isRoot ? nullptr : sum.data(), sum.size(), {.dtype = DType::Int64}}});
  make(self, group, std::move(call), [this, &self, index, tensors](const Error& error) {
    error ? report(self, error) : stepIsDone(self, index, *tensors);
  });
}

void Rounds::stepIsDone(Player& self, int index, const Tensors& tensors) {
  const std::size_t state = self.kept.back().second;
  const std::vector<int>& members = self.group->members;
  Numbers sums(tensors.to[0].size());
  for (const Numbers& block : tensors.to) std::ranges::transform(sums, block, sums.begin(), std::plus<>());
  const std::int64_t expected = resultOf(state, members);
  for (const std::int64_t sum : sums) {
    if (sum != expected) {
      return broke("process ", self.process, " has ", sum, " in step ", states_[state].log.size(), " instead of ",
                   expected);
    }
  }
  keep(self, after(state, members));
  takeStep(self, index + 1);
}

// Its `done`, if it has one, is called on the loop; `then` in the main thread.
void Rounds::make(Player& self, const std::shared_ptr<Group>& group, Call call,
                  std::function<void(const Error&)> then) {
  if (call.timeout.count() == 0) call.timeout = kCall;
  call.done = [this, &self, group = group.get(), done = std::move(call.done),
               then = std::move(then)](const Error& error) {
    if (isOver_ || processes_.isGone(self.process)) return;
    if (error) checkBlame(self, *group, error);
    if (done) done(error);
    processes_.at(processes_.timeOf(self.process) + processes_.someTime(), [this, &self, then, error] {
      processes_.in(self.process, [this, then, error] {
        if (!isOver_) then(error);
      });
    });
  };
  processes_.submit(self.process, group->member, std::move(call));
}

void Rounds::report(Player& self, const Error& error) {
  if (std::exchange(self.hasReported, true)) broke("process ", self.process, " has ended its round twice");
  self.error = error;
  hasFailed_ = hasFailed_ || error;
  verdict_.failed = verdict_.failed || error;
  if (error && !isDisturbed_)
    broke("process ", self.process, " has failed, though nothing fatal was done: ", error.text());
  if (error) checkLate();
}

// ---- who watches them

// Who has died, has stood still for long, or is cut off. A rank that only waits may name whom it waits for. To one that
// was not connected yet, who has failed and left looks as dead as the culprit: there is no store that has the reason.
void Rounds::checkBlame(const Player& self, const Group& group, const Error& error) {
  if (error.kind() != ErrorKind::PeerDied && error.kind() != ErrorKind::Connection) return;
  std::vector<int> named;
  for (const int rank : ranksNamedIn(error.text())) {
    if (rank < group.size()) named.push_back(group.members[static_cast<std::size_t>(rank)]);
  }
  const int other = named.size() > 1 ? named[1] : self.process;
  const auto hasLeft = [&](int process) {
    return player(process).hasReported && player(process).error &&
           std::ranges::none_of(player(process).groups, [&](const auto& one) { return one->id == group.id; });
  };
  const bool isSo =
      !named.empty() && (processes_.isToBlame(named[0]) || hasLeft(named[0]) || processes_.areCutOff(named[0], other) ||
                         (error.kind() == ErrorKind::Connection && (processes_.isToBlame(other) || hasLeft(other))));
  if (!isSo) broke("process ", self.process, " names who is not to blame: ", error.text());
}

void Rounds::checkLate() {
  const Time since = std::max(began_, std::min(processes_.lastFaultEnds(), processes_.now()));
  const Time within = kMeeting + 2 * Time(milliseconds(script_.heartbeatMs)) + kSlack;
  if (processes_.now() > since + within)
    broke("an error comes ", secondsOf(processes_.now() - since), " s after the last fault");
}

void Rounds::checkHang() {
  if (isOver_ || processes_.now() < std::max(began_, processes_.lastFaultEnds()) + kHang) return;
  for (const int member : members_) {
    if (!player(member).hasReported && !processes_.isGone(member)) broke("process ", member, " does not end its round");
  }
}

void Rounds::beginRound() {
  ++round_;
  began_ = processes_.now();
  steps_ = static_cast<int>(2 + random_() % 4);
  aborts_ = random_() % 2 == 0;
  hasFailed_ = isDisturbed_ = false;
  rememberWhoHasMet();
  stepsBegun_ = 0;
  beginning_ = 0;
  answers_.clear();
  went_.clear();
  handles_.clear();
  std::erase_if(cuts_, [this](const auto& cut) { return cut.second <= began_; });
  // What is left of a group that did not fail still has its connections, and may notice late what was done to them.
  const Time noticed = 2 * Time(milliseconds(script_.heartbeatMs)) + kSlack;
  isDisturbed_ = !cuts_.empty() || (script_.shrinks && fatalEnds_ + noticed > began_);
  for (const int member : members_) {
    Player& self = player(member);
    self.hasReported = self.hasMet = false;
    isDisturbed_ = isDisturbed_ || processes_.isGone(member) || processes_.standsStillFor(member) > Time(0);
    const int rank = self.group ? self.group->rank : Handle::kNewcomer;
    handles_.push_back(toText(Handle{self.token, rank, processes_.factsOf(member, *self.acceptor)}));
  }
  for (const int member : members_) {
    processes_.at(began_ + processes_.someTime(),
                  [this, member] { processes_.in(member, [this, member] { enter(player(member)); }); });
  }
  strikeIn(0);
}

void Rounds::strikeIn(int step) {
  if (round_ >= script_.rounds) return;  // the last ones have no faults
  const Time now = processes_.now();
  for (const Fault& fault : script_.faults) {
    if (fault.round == round_ && fault.step == step)
      processes_.at(now + ofSeconds(static_cast<double>(fault.atMicros) * 1e-6), [this, fault] { strike(fault); });
  }
}

// Before the round begins: the judge's own account of what its members have in common.
void Rounds::rememberWhoHasMet() {
  comrades_.clear();
  havePart_.reset();
  commonSteps_ = std::numeric_limits<std::size_t>::max();
  for (const int member : members_) {
    const Player& self = player(member);
    if (!before_.contains(member)) continue;
    if (!self.hasMet) return comrades_.clear();
    comrades_.insert(member);
    commonSteps_ = std::min(commonSteps_, self.kept.empty() ? beginning_ : states_[self.kept.back().second].log.size());
  }
}

// Somebody may have acted on what has been agreed on once.
void Rounds::checkAgreed(Player& self, bool hasPart) {
  const std::size_t steps = self.kept.empty() ? 0 : states_[self.kept.back().second].log.size();
  if (hasPart && steps < self.agreed)
    broke("process ", self.process, " goes back to ", steps, " steps, behind ", self.agreed, ", which were agreed on");
  self.agreed = steps;
}

void Rounds::checkPart(const Player& self, bool hasPart) {
  if (!comrades_.contains(self.process)) return;
  if (havePart_.value_or(hasPart) != hasPart)
    broke("process ", self.process, hasPart ? " has" : " has no", " part in what others of the round before agreed on");
  havePart_ = hasPart;
  if (!hasPart || self.kept.empty()) return;
  const std::size_t steps = states_[self.kept.back().second].log.size();
  if (steps != commonSteps_)
    broke("process ", self.process, " goes back to ", steps, " steps, but all of the round before have ", commonSteps_);
}

// Only what hits somebody counts.
void Rounds::strike(const Fault& fault) {
  const bool isOfMachines = fault.kind == Fault::Kind::Cut || fault.kind == Fault::Kind::Sever;
  const auto isMemberAt = [this](int machine) {
    return std::ranges::any_of(members_, [&](int member) {
      return !processes_.isGone(member) && processes_.topology().machineOf(member) == machine;
    });
  };
  if (isOver_ || (!isOfMachines && processes_.isGone(fault.who))) return;
  const bool hits = isOfMachines ? isMemberAt(fault.who) && isMemberAt(fault.other)
                                 : std::ranges::find(members_, fault.who) != members_.end();
  if (hits) verdict_.struck.push_back(fault);
  processes_.strike(fault);
  const Time ends = processes_.now() + ofSeconds(static_cast<double>(fault.amount) * 1e-6);
  if (isOfMachines) cuts_.emplace_back(fault.who, ends);
  if (!script_.isFatal(fault)) return;
  isDisturbed_ = true;
  if (fault.kind != Fault::Kind::Kill && fault.amount < kForEverMicros) fatalEnds_ = std::max(fatalEnds_, ends);
}

// Whoever stands still for ever is killed by whoever watches it.
bool Rounds::isRoundOver() {
  const auto isOut = [this](int member) { return player(member).hasReported || processes_.isGone(member); };
  if (!std::ranges::all_of(members_,
                           [&](int m) { return isOut(m) || processes_.standsStillFor(m) == simulation::kNever; }))
    return false;
  for (const int member : members_) {
    if (!isOut(member)) processes_.kill(member);
  }
  return true;
}

std::vector<int> Rounds::nextMembers() {
  if (script_.shrinks) return leftAfterShrink();
  const auto isReachable = [this](int process) {
    return !processes_.isGone(process) && processes_.standsStillFor(process) == Time(0) &&
           std::ranges::none_of(cuts_, [&](const auto& cut) {
             const bool isThere = cut.first == processes_.topology().machineOf(process);
             return isThere && cut.second > processes_.now() && random_() % 4 != 0;
           });
  };
  std::vector<int> chosen;
  for (int process = 0; process < processes_.topology().world(); ++process) {
    if (isReachable(process) && random_() % 5 != 0) chosen.push_back(process);
  }
  for (int process = 0; process < processes_.topology().world() && chosen.size() < 2; ++process) {
    if (!processes_.isGone(process) && std::ranges::find(chosen, process) == chosen.end()) chosen.push_back(process);
  }
  std::ranges::shuffle(chosen, random_);
  for (const int process : chosen) verdict_.joins += std::ranges::find(members_, process) == members_.end() ? 1 : 0;
  return chosen;
}

// A group that has failed must lose somebody.
std::vector<int> Rounds::leftAfterShrink() const {
  std::vector<int> left;
  for (const int member : members_) {
    if (!processes_.isGone(member)) left.push_back(member);
  }
  if (hasFailed_ && left.size() == members_.size()) left.pop_back();
  return left;
}

void Rounds::endRound() {
  const std::vector<int> members = std::exchange(members_, nextMembers());
  before_ = {members.begin(), members.end()};
  const bool areFaultsOver = round_ + 1 >= script_.rounds;
  if (members_.size() < 2) {
    isOver_ = true;
  } else if (areFaultsOver && lastRounds_ > 0 && !hasFailed_) {
    checkTheEnd(members);
    isOver_ = true;
  } else if (areFaultsOver && ++lastRounds_ > kMostLastRounds) {
    broke(kMostLastRounds, " rounds without a fault came to nothing");
  } else {
    beginRound();
  }
}

// A fault of an earlier round may have come late, and hit one that the others needed no more.
void Rounds::checkTheEnd(std::vector<int> members) {
  std::erase_if(members, [this](int member) { return processes_.isGone(member); });
  if (members.empty()) return;
  const std::size_t state = player(members.front()).kept.back().second;
  for (const int member : members) {
    if (player(member).kept.back().second != state) broke("process ", member, " has other steps in the end");
  }
  verdict_.bits = static_cast<std::uint64_t>(states_[state].number);
  verdict_.steps = states_[state].log.size();
}

std::size_t Rounds::after(std::size_t state, const std::vector<int>& members) {
  const auto [found, isNew] = statesAfter_.try_emplace({state, members}, states_.size());
  if (isNew) {
    State next = states_[state];
    next.number = (next.number * 31 + resultOf(state, members)) % kPrime;
    next.log.push_back(members);
    states_.push_back(std::move(next));
  }
  return found->second;
}

std::int64_t Rounds::shareOf(int process, std::size_t state) const {
  return (states_[state].number % 1000 + 1) * (process + 1) + static_cast<std::int64_t>(states_[state].log.size());
}

std::int64_t Rounds::resultOf(std::size_t state, const std::vector<int>& members) const {
  const Step step = stepAfter(state, members.size());
  if (step.pattern == Pattern::Broadcast) return shareOf(members[static_cast<std::size_t>(step.root)], state);
  std::int64_t sum = 0;
  for (const int member : members) sum += shareOf(member, state);
  return sum;
}

Verdict Rounds::run() {
  beginRound();
  while (verdict_.broken.empty() && !isOver_ && processes_.events() < kMostEvents && processes_.step()) {
    if (isRoundOver()) endRound();
    checkHang();
  }
  if (verdict_.broken.empty() && !isOver_) broke("after ", processes_.events(), " events there is no end");
  if (processes_.isStrangerInside()) broke("a stranger is inside");
  verdict_.events = processes_.events();
  verdict_.seconds = secondsOf(processes_.now());
  return verdict_;
}

Verdict playRounds(const Script& script, const std::vector<Place>& places) { return Rounds(script, places).run(); }

}  // namespace fairring::testing
