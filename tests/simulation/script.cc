#include "script.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <sstream>
#include <string_view>

#include "base/error.h"

namespace fairring::testing {

namespace {

constexpr std::array kPatternNames{"all-reduce", "reduce",  "broadcast", "reduce-scatter",
                                   "all-gather", "scatter", "gather",    "all-to-all"};
constexpr std::string_view kUneven = "uneven-";
constexpr const char* kSparseName = "sparse-all-reduce";
constexpr std::array kFaultNames{"kill", "pause", "slow",   "cut",      "sever",  "break", "lose",
                                 "late", "idle",  "refuse", "stranger", "freeze", "leap",  "starve"};

// A rank that waits for another one looks for its listener once a second (group/member.cc), and the second refusal
// counts.
constexpr std::int64_t kBetweenProbesMicros = 1'000'000;
constexpr int kIntrusions = 4;
constexpr int kCrowd = 3;  // the last of these

std::vector<std::vector<int>> layouts() {
  return {{2},       {4},       {2, 2},   {3, 1},       {1, 1, 1},
          {2, 2, 2}, {1, 3, 2}, {4, 4},   {2, 2, 2, 2}, {1, 1, 1, 1, 1, 1, 1, 1},
          {1, 1},    {3, 2, 1}, {2, 1, 1}};
}

std::vector<std::vector<int>> groupedLayouts() {
  return {{1, 1, 1, 1},
          {2, 2, 2, 2},
          {2, 1, 2, 1},
          {1, 1, 1, 1, 1, 1},
          {1, 2, 1, 1},
          {1, 1, 1, 1, 1, 1, 1},
          {1, 1, 1, 1, 1, 1, 1, 1}};
}

template <class Names>
std::optional<std::size_t> indexOf(const Names& names, const std::string& name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names.begin());
}

std::int64_t numberIn(const std::string& text) { return std::strtoll(text.c_str(), nullptr, 10); }

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

Fault drawnFault(std::mt19937_64& random, const Script& script) {
  Fault fault;
  const auto machines = script.machines.size();
  const std::uint64_t kind = random() % 8;
  fault.kind = kind < 2   ? Fault::Kind::Kill
               : kind < 4 ? Fault::Kind::Pause
               : kind < 5 ? Fault::Kind::Slow
               : kind < 7 ? Fault::Kind::Cut
                          : Fault::Kind::Sever;
  if (machines < 2 && (fault.kind == Fault::Kind::Cut || fault.kind == Fault::Kind::Sever))
    fault.kind = Fault::Kind::Pause;
  fault.who = static_cast<int>(random() % static_cast<std::uint64_t>(script.world()));
  if (fault.kind == Fault::Kind::Cut || fault.kind == Fault::Kind::Sever) {
    fault.who = static_cast<int>(random() % machines);
    fault.other = static_cast<int>((static_cast<std::size_t>(fault.who) + 1 + random() % (machines - 1)) % machines);
  }
  fault.atMicros = static_cast<std::int64_t>(random() % 12'000);
  fault.amount = static_cast<std::int64_t>(fault.kind == Fault::Kind::Slow ? 2 + random() % 50 : random() % 30'000);
  return fault;
}

void drawLanes(std::mt19937_64& random, Script& script) {
  script.lanes = 1 + random() % 3;
  for (std::uint64_t breaks = random() % 4; breaks > 0; --breaks) {
    script.faults.push_back({.kind = Fault::Kind::Break,
                             .who = static_cast<int>(random() % static_cast<std::uint64_t>(script.world())),
                             .atMicros = static_cast<std::int64_t>(random() % 12'000)});
  }
}

// The group is forming for some of the time, and what goes wrong may last for longer than the heartbeats wait.
void drawMembers(std::mt19937_64& random, Script& script) {
  script.heartbeatMs = 200LL << (random() % 4);
  script.lanes = 1 + random() % 2;
  for (Fault& fault : script.faults) {
    fault.atMicros = static_cast<std::int64_t>(random() % (random() % 2 == 0 ? 12'000 : 60'000));
    if ((fault.kind == Fault::Kind::Pause || fault.kind == Fault::Kind::Cut) && random() % 2 == 0)
      fault.amount = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(3000 * script.heartbeatMs));
  }
  const auto who = static_cast<int>(random() % static_cast<std::uint64_t>(script.world()));
  if (random() % 8 == 0)
    script.faults.push_back({.kind = Fault::Kind::Lose, .atMicros = static_cast<std::int64_t>(random() % 20'000)});
  if (random() % 8 == 0) {
    script.faults.push_back(
        {.kind = Fault::Kind::Late, .who = who, .amount = static_cast<std::int64_t>(random() % 3'000'000)});
  }
}

void drawRefusals(std::mt19937_64& random, Script& script) {
  for (ScriptedCall& call : script.calls) {
    if (random() % 3 == 0 && call.elements > 0)
      call.refuser = static_cast<int>(random() % static_cast<std::uint64_t>(script.world()));
  }
}

void drawForms(std::mt19937_64& random, Script& script) {
  for (ScriptedCall& call : script.calls) {
    if (call.pattern == Pattern::AllToAll && random() % 2 == 0) call.form = Form::Uneven;
    if (call.pattern == Pattern::AllReduce && random() % 4 == 0) call.form = Form::Sparse;
    if (call.form != Form::Dense || call.pattern == Pattern::AllToAll) continue;
    if (isByRank(call.pattern) && random() % 4 == 0) call.form = Form::Uneven;
    if (random() % 3 == 0) call.tensors = 2 + random() % 3;
  }
}

// A crowd holds up who comes behind it for a second, which members that wait for less than that may not bear. Two of
// them take two.
void drawStrangers(std::mt19937_64& random, Script& script) {
  const int round = script.rounds > 0 ? static_cast<int>(random() % static_cast<std::uint64_t>(script.rounds)) : 0;
  for (std::uint64_t strangers = 1 + random() % 4; strangers > 0; --strangers) {
    const auto how = static_cast<int>(random() % kIntrusions);
    const bool isFirst = std::ranges::none_of(
        script.faults, [](const Fault& other) { return other.kind == Fault::Kind::Stranger && other.other == kCrowd; });
    const bool isBorne = script.rounds > 0 || (isFirst && script.heartbeatMs * 1000 > kBetweenProbesMicros);
    script.faults.push_back({.kind = Fault::Kind::Stranger,
                             .who = static_cast<int>(random() % static_cast<std::uint64_t>(script.world())),
                             .other = isBorne ? how : how % kCrowd,
                             .atMicros = static_cast<std::int64_t>(random() % 20'000),
                             .round = round});
  }
}

// What only shows what members do about it where it comes together, or at its time.
void drawScene(std::mt19937_64& random, Script& script) {
  const int world = script.world();
  const std::int64_t timeout = script.heartbeatMs * 1000;
  const auto below = [&random](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most));
  };
  const auto who = static_cast<int>(below(world));
  const std::int64_t at = 3'000 + below(17'000);
  const auto add = [&script](Fault fault) { script.faults.push_back(fault); };
  switch (random() % 6) {
    case 0: return add({.kind = Fault::Kind::Pause, .who = who, .atMicros = at, .amount = kForEverMicros});
    case 1: {  // twice for as long as the others just bear
      const std::int64_t first = timeout * 9 / 10 + below(timeout / 5);
      script.calls.resize(6, {.elements = 1'000});
      add({.kind = Fault::Kind::Pause, .who = who, .atMicros = at, .amount = first});
      return add({.kind = Fault::Kind::Pause,
                  .who = who,
                  .atMicros = at + first + below(10'000),
                  .amount = timeout * 9 / 10 + below(timeout / 5)});
    }
    case 2:  // comes when the others have gone because one has died
      add({.kind = Fault::Kind::Idle, .who = who, .amount = timeout + below(3'000'000)});
      return add({.kind = Fault::Kind::Kill, .who = (who + 1) % world, .atMicros = at});
    case 3:  // nobody connects to the last rank, but for a look whether it still listens
      add({.kind = Fault::Kind::Idle, .who = world - 1, .amount = 2'000'000 + below(2'000'000)});
      return add({.kind = Fault::Kind::Refuse,
                  .who = world - 1,
                  .atMicros = 600'000 + below(800'000),
                  .amount = 400'000 + below(500'000)});
    case 4:  // while they connect
      for (int i = 0; i < 4; ++i)
        add({.kind = Fault::Kind::Break, .who = static_cast<int>(below(world)), .atMicros = 2'000 + below(6'000)});
      return;
    default:
      return add({.kind = below(2) == 0 ? Fault::Kind::Freeze : Fault::Kind::Leap,
                  .who = who,
                  .atMicros = below(20'000),
                  .amount = below(3 * timeout)});
  }
}

// One of some thousand allocations, as far as there are so many.
void drawStarvation(Script& script) {
  std::mt19937_64 random(script.seed + 0x57A2FE);
  if (random() % 6 != 0) return;
  script.faults.push_back({.kind = Fault::Kind::Starve,
                           .who = static_cast<int>(random() % static_cast<std::uint64_t>(script.world())),
                           .atMicros = static_cast<std::int64_t>(random() % 20'000),
                           .amount = static_cast<std::int64_t>(1 + random() % (random() % 2 == 0 ? 100 : 3'000))});
}

// The members of a group change, by deaths and by chance. Some processes are not members from the beginning.
void drawRounds(std::mt19937_64& random, Script& script) {
  static const std::vector<std::vector<int>> kMachines{{2, 2, 2}, {3, 3}, {2, 2, 2, 2}, {1, 1, 1, 1, 1}, {4, 2}, {5}};
  const auto machinesOf = script.grouped ? groupedLayouts() : kMachines;
  script.machines = machinesOf[random() % machinesOf.size()];
  script.sites = 1;
  script.heartbeatMs = 200LL << (random() % 3);
  script.lanes = 1 + random() % 2;
  script.rounds = static_cast<int>(3 + random() % 6);
  script.shrinks = random() % 3 == 0;
  script.calls = {{}};
  script.faults.clear();
  const auto machines = script.machines.size();
  for (int round = 0; round < script.rounds; ++round) {
    for (std::uint64_t faults = random() % 3; faults > 0; --faults) {
      Fault fault{.kind = Fault::Kind::Kill, .round = round};
      fault.who = static_cast<int>(random() % static_cast<std::uint64_t>(script.world()));
      fault.atMicros = static_cast<std::int64_t>(random() % (random() % 2 == 0 ? 12'000 : 60'000));
      const std::uint64_t when = random() % 4;  // mostly in the midst of a call, or of the meeting
      if (when > 0) fault.atMicros = static_cast<std::int64_t>(random() % 6'000);
      if (when > 1) fault.step = static_cast<int>(1 + random() % 5);
      const std::uint64_t kind = random() % 8;
      const std::array<std::int64_t, 3> lasting{script.heartbeatMs * 400, script.heartbeatMs * 4'000, kForEverMicros};
      if (kind >= 3 && kind < 6) {
        fault.kind = Fault::Kind::Pause;
        fault.amount = lasting[random() % lasting.size()];
      } else if (kind >= 6 && machines > 1) {
        fault.kind = Fault::Kind::Cut;
        fault.who = static_cast<int>(random() % machines);
        fault.other =
            static_cast<int>((static_cast<std::size_t>(fault.who) + 1 + random() % (machines - 1)) % machines);
        fault.amount = lasting[random() % 2];
      }
      script.faults.push_back(fault);
    }
  }
}

// Somebody or something holds all up, heartbeats tell nothing of it in time, and calls are late: the ranks must find
// out who it is, though most of them wait for ranks that wait themselves.
void drawChains(std::mt19937_64& random, Script& script) {
  script.heartbeatMs = 60'000;
  script.timeoutMs = static_cast<std::int64_t>(2'000 + random() % 4'000);
  script.lanes = 1 + random() % 2;
  while (script.calls.size() < 6) script.calls.push_back({.elements = random() % 30'000});
  script.faults.clear();
  const auto machines = static_cast<int>(script.machines.size());
  const auto who = static_cast<int>(random() % static_cast<std::uint64_t>(script.world()));
  const auto at = static_cast<std::int64_t>(random() % (random() % 2 == 0 ? 8'000 : 40'000));
  const auto cut = [&script, at](int one, int other) {
    for (const auto& [from, to] : {std::pair(one, other), std::pair(other, one)}) {
      script.faults.push_back(
          {.kind = Fault::Kind::Cut, .who = from, .other = to, .atMicros = at, .amount = kForEverMicros});
    }
  };
  const std::uint64_t kind = random() % (machines > 1 ? 4 : 2);
  if (kind == 0) {
    script.faults.push_back({.kind = Fault::Kind::Idle, .who = who, .amount = 3'000 * script.timeoutMs});
  } else if (kind == 1) {
    script.faults.push_back({.kind = Fault::Kind::Pause, .who = who, .atMicros = at, .amount = kForEverMicros});
  } else {
    const auto machine = static_cast<int>(random() % static_cast<std::uint64_t>(machines));
    const int another = (machine + 1) % machines;
    for (int other = 0; other < machines; ++other) {
      if (kind == 2 ? other != machine : other == another) cut(machine, other);
    }
  }
}

std::string nameOf(const ScriptedCall& call) {
  if (call.form == Form::Sparse) return kSparseName;
  return concat(call.form == Form::Uneven ? kUneven : "", kPatternNames[static_cast<std::size_t>(call.pattern)]);
}

std::optional<ScriptedCall> parsedCall(const std::string& text) {
  const auto parts = split(text, ':');
  if (parts.size() < 2) return std::nullopt;
  ScriptedCall call{.root = parts.size() > 2 ? static_cast<int>(numberIn(parts[2])) : -1,
                    .elements = std::strtoull(parts[1].c_str(), nullptr, 10),
                    .refuser = parts.size() > 3 ? static_cast<int>(numberIn(parts[3])) : -1,
                    .tensors = parts.size() > 4 ? static_cast<std::uint64_t>(numberIn(parts[4])) : 1};
  std::string name = parts[0];
  if (name == kSparseName) {
    call.form = Form::Sparse;
    return call;
  }
  if (name.starts_with(kUneven)) {
    call.form = Form::Uneven;
    name.erase(0, kUneven.size());
  }
  const auto pattern = indexOf(kPatternNames, name);
  if (!pattern) return std::nullopt;
  call.pattern = static_cast<Pattern>(*pattern);
  return call;
}

std::optional<Fault> parsedFault(const std::string& text) {
  const auto parts = split(text, ':');
  if (parts.size() < 5 || parts.size() > 7) return std::nullopt;
  const auto kind = indexOf(kFaultNames, parts[0]);
  if (!kind) return std::nullopt;
  return Fault{static_cast<Fault::Kind>(*kind),
               static_cast<int>(numberIn(parts[1])),
               static_cast<int>(numberIn(parts[2])),
               numberIn(parts[3]),
               numberIn(parts[4]),
               parts.size() > 5 ? static_cast<int>(numberIn(parts[5])) : 0,
               parts.size() > 6 ? static_cast<int>(numberIn(parts[6])) : 0};
}

// As it would be on fewer machines or ranks.
std::optional<Script> fitted(Script script, std::vector<int> machines) {
  if (machines.empty()) return std::nullopt;
  script.machines = std::move(machines);
  script.sites = std::min<int>(script.sites, static_cast<int>(script.machines.size()));
  const int world = script.world();
  for (ScriptedCall& call : script.calls) {
    call.root = std::min(call.root, world - 1);
    call.refuser = std::min(call.refuser, world - 1);
  }
  std::erase_if(script.faults, [&](const Fault& fault) {
    const bool isOfMachines = fault.kind == Fault::Kind::Cut || fault.kind == Fault::Kind::Sever;
    const int most = isOfMachines ? static_cast<int>(script.machines.size()) : world;
    return fault.who >= most || (isOfMachines && fault.other >= most);
  });
  return script;
}

}  // namespace

int Script::world() const { return std::accumulate(machines.begin(), machines.end(), 0); }

GroupingFrom Script::grouping() const { return grouped ? GroupingFrom{.groups = 4, .only = 4} : GroupingFrom{}; }

// Of members also what lasts for about as long as their heartbeats wait.
bool Script::isFatal(const Fault& fault) const {
  switch (fault.kind) {
    case Fault::Kind::Kill:
    case Fault::Kind::Sever: return true;
    case Fault::Kind::Lose:
    case Fault::Kind::Starve: return heartbeatMs > 0;
    case Fault::Kind::Refuse: {
      // A look that a cut held up may come just before the next one.
      const auto holdsUp = [](const Fault& other) {
        return other.kind == Fault::Kind::Cut || other.kind == Fault::Kind::Freeze;
      };
      const bool isBorne = fault.who == world() - 1 && fault.amount < kBetweenProbesMicros;
      return heartbeatMs > 0 && (!isBorne || std::ranges::any_of(faults, holdsUp));
    }
    case Fault::Kind::Pause:
    case Fault::Kind::Freeze:
    case Fault::Kind::Leap:
    case Fault::Kind::Cut: return heartbeatMs > 0 && fault.amount > heartbeatMs * 1000 / 2;
    case Fault::Kind::Idle: return timeoutMs > 0 && fault.amount > timeoutMs * 1000 / 2;
    default: return false;
  }
}

std::string Script::text() const {
  std::ostringstream out;
  out << "seed=" << seed << " machines=";
  for (std::size_t i = 0; i < machines.size(); ++i) out << (i == 0 ? "" : ",") << machines[i];
  out << " interleaved=" << interleaved << " sites=" << sites << " staging=" << stagingKiB << " slice=" << sliceKiB
      << " eager=" << eagerKiB << " credit=" << creditKiB << " copied=" << copiedKiB << " waits=" << waits
      << " lanes=" << lanes << " heartbeat=" << heartbeatMs;
  if (timeoutMs > 0) out << " timeout=" << timeoutMs;
  if (late) out << " late=1";
  if (grouped) out << " grouped=1";
  if (rounds > 0) out << " rounds=" << rounds << " shrinks=" << shrinks;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const ScriptedCall& call = calls[i];
    out << (i == 0 ? " calls=" : ",") << nameOf(call) << ':' << call.elements;
    const bool isCut = call.tensors > 1;
    if (isCut || call.root >= 0 || call.refuser >= 0) out << ':' << call.root;
    if (isCut || call.refuser >= 0) out << ':' << call.refuser;
    if (isCut) out << ':' << call.tensors;
  }
  for (std::size_t i = 0; i < faults.size(); ++i) {
    const Fault& fault = faults[i];
    out << (i == 0 ? " faults=" : ",") << kFaultNames[static_cast<std::size_t>(fault.kind)] << ':' << fault.who << ':'
        << fault.other << ':' << fault.atMicros << ':' << fault.amount;
    if (fault.round > 0 || fault.step > 0) out << ':' << fault.round;
    if (fault.step > 0) out << ':' << fault.step;
  }
  return out.str();
}

Script drawn(std::uint64_t seed, Kind kind) {
  std::mt19937_64 random(seed);
  Script script;
  script.seed = seed;
  const auto worlds = layouts();
  script.machines = worlds[random() % worlds.size()];
  script.interleaved = random() % 4 == 0;
  const auto machines = script.machines.size();
  if (machines > 2 && random() % 4 == 0) script.sites = machines > 3 && seed % 2 == 0 ? 3 : 2;
  if (std::mt19937_64 other(~seed); other() % 4 == 0) {
    const auto grouped = groupedLayouts();
    script.grouped = true;
    script.machines = grouped[other() % grouped.size()];
    script.sites = 1;
  }
  script.sliceKiB = 8ULL << (random() % 3);
  script.stagingKiB = 256ULL << (random() % 2);
  script.eagerKiB = 1ULL << (random() % 4);
  script.creditKiB = script.eagerKiB * (1 + random() % 3);
  script.copiedKiB = random() % 2 == 0 ? 0 : 512;
  script.waits = random() % 2 == 0;
  const bool areMany = random() % 16 == 0;  // small ones, and room for them: more than a queue has lines of flags
  if (areMany) script.stagingKiB = 4096;
  const std::uint64_t calls = areMany ? 70 + random() % 60 : 1 + random() % 6;
  for (std::uint64_t c = 0; c < calls; ++c) {
    ScriptedCall call{.pattern = static_cast<Pattern>(random() % kPatternNames.size())};
    if (random() % 2 == 0) call.pattern = Pattern::AllReduce;
    if (hasRoot(call.pattern)) call.root = static_cast<int>(random() % static_cast<std::uint64_t>(script.world()));
    const std::uint64_t most = call.pattern == Pattern::AllReduce ? 60'000 : 6'000;
    call.elements = random() % (areMany || random() % 2 == 0 ? 64 : most);
    script.calls.push_back(call);
  }
  const std::uint64_t faults = random() % 2 == 0 ? 0 : 1 + random() % 3;
  for (std::uint64_t f = 0; f < faults; ++f) script.faults.push_back(drawnFault(random, script));
  if (random() % 2 == 0) drawLanes(random, script);
  if (kind == Kind::Any) {
    const std::uint64_t chance = random() % 8;
    kind = chance == 0 ? Kind::Rounds : chance <= 2 ? Kind::Members : chance == 3 ? Kind::Chains : Kind::Any;
  }
  if (kind == Kind::Members) drawMembers(random, script);
  if (kind == Kind::Rounds) drawRounds(random, script);
  if (kind == Kind::Chains) drawChains(random, script);
  if (kind == Kind::Members && random() % 2 == 0) drawScene(random, script);
  if (kind == Kind::Members) drawStarvation(script);
  if ((kind == Kind::Members || kind == Kind::Rounds) && random() % 4 == 0) drawStrangers(random, script);
  if (random() % 4 == 0) drawRefusals(random, script);
  if (kind != Kind::Rounds && random() % 2 == 0) drawForms(random, script);
  script.late = kind != Kind::Rounds && random() % 4 == 0;
  return script;
}

std::optional<Script> parsed(const std::string& text) {
  Script script;
  script.machines.clear();
  for (const std::string& word : split(text, ' ')) {
    const auto equals = word.find('=');
    if (word.empty()) continue;
    if (equals == std::string::npos) return std::nullopt;
    const std::string key = word.substr(0, equals);
    const std::string value = word.substr(equals + 1);
    const std::uint64_t number = std::strtoull(value.c_str(), nullptr, 10);
    const std::map<std::string, std::uint64_t*> numbers{{"seed", &script.seed},        {"staging", &script.stagingKiB},
                                                        {"slice", &script.sliceKiB},   {"eager", &script.eagerKiB},
                                                        {"credit", &script.creditKiB}, {"copied", &script.copiedKiB},
                                                        {"lanes", &script.lanes}};
    if (const auto found = numbers.find(key); found != numbers.end()) {
      *found->second = number;
    } else if (key == "interleaved") {
      script.interleaved = number != 0;
    } else if (key == "heartbeat") {
      script.heartbeatMs = numberIn(value);
    } else if (key == "timeout") {
      script.timeoutMs = numberIn(value);
    } else if (key == "rounds") {
      script.rounds = static_cast<int>(number);
    } else if (key == "shrinks") {
      script.shrinks = number != 0;
    } else if (key == "sites") {
      script.sites = static_cast<int>(number);
    } else if (key == "grouped") {
      script.grouped = number != 0;
    } else if (key == "late") {
      script.late = number != 0;
    } else if (key == "waits") {
      script.waits = number != 0;
    } else if (key == "machines") {
      for (const std::string& ranks : split(value, ',')) script.machines.push_back(static_cast<int>(numberIn(ranks)));
    } else if (key == "calls") {
      for (const std::string& one : split(value, ',')) {
        const auto call = parsedCall(one);
        if (!call) return std::nullopt;
        script.calls.push_back(*call);
      }
    } else if (key == "faults") {
      for (const std::string& one : split(value, ',')) {
        const auto fault = parsedFault(one);
        if (!fault) return std::nullopt;
        script.faults.push_back(*fault);
      }
    } else {
      return std::nullopt;
    }
  }
  return script.machines.empty() ? std::nullopt : std::optional(script);
}

std::vector<Script> shortened(const Script& script) {
  std::vector<Script> shorter;
  const auto add = [&](auto&& change) {
    Script one = script;
    change(one);
    shorter.push_back(std::move(one));
  };
  for (std::size_t i = 0; i < script.faults.size(); ++i)
    add([i](Script& one) { one.faults.erase(one.faults.begin() + static_cast<std::ptrdiff_t>(i)); });
  for (std::size_t i = 0; script.calls.size() > 1 && i < script.calls.size(); ++i)
    add([i](Script& one) { one.calls.erase(one.calls.begin() + static_cast<std::ptrdiff_t>(i)); });
  for (std::size_t m = 0; m < script.machines.size(); ++m) {
    std::vector<int> fewer = script.machines;
    if (--fewer[m] == 0) fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(m));
    if (auto one = fitted(script, fewer)) shorter.push_back(*one);
  }
  for (std::size_t i = 0; i < script.calls.size(); ++i) {
    if (script.calls[i].elements > 1) add([i](Script& one) { one.calls[i].elements /= 2; });
    if (script.calls[i].form != Form::Dense) add([i](Script& one) { one.calls[i].form = Form::Dense; });
    if (script.calls[i].pattern != Pattern::AllReduce)
      add([i](Script& one) { one.calls[i] = {.elements = one.calls[i].elements, .refuser = one.calls[i].refuser}; });
    if (script.calls[i].refuser >= 0) add([i](Script& one) { one.calls[i].refuser = -1; });
    if (script.calls[i].tensors > 1) add([i](Script& one) { --one.calls[i].tensors; });
  }
  if (script.interleaved) add([](Script& one) { one.interleaved = false; });
  if (script.sites > 1) add([](Script& one) { one.sites = 1; });
  if (script.grouped) add([](Script& one) { one.grouped = false; });
  if (script.waits) add([](Script& one) { one.waits = false; });
  if (script.late) add([](Script& one) { one.late = false; });
  if (script.lanes > 0) add([](Script& one) { --one.lanes; });
  if (script.heartbeatMs > 0 && script.rounds == 0) add([](Script& one) { one.heartbeatMs = 0; });
  if (script.rounds > 1) add([](Script& one) { --one.rounds; });
  return shorter;
}

}  // namespace fairring::testing
