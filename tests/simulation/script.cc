#include "script.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <sstream>

namespace fairring::testing {

namespace {

constexpr std::array kPatternNames{"all-reduce", "reduce",  "broadcast", "reduce-scatter",
                                   "all-gather", "scatter", "gather",    "all-to-all"};
constexpr std::array kFaultNames{"kill", "pause", "slow", "cut", "sever", "break", "lose", "late"};

std::vector<std::vector<int>> layouts() {
  return {{2},       {4},       {2, 2},   {3, 1},       {1, 1, 1},
          {2, 2, 2}, {1, 3, 2}, {4, 4},   {2, 2, 2, 2}, {1, 1, 1, 1, 1, 1, 1, 1},
          {1, 1},    {3, 2, 1}, {2, 1, 1}};
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

std::optional<ScriptedCall> parsedCall(const std::string& text) {
  const auto parts = split(text, ':');
  if (parts.size() < 2) return std::nullopt;
  const auto pattern = indexOf(kPatternNames, parts[0]);
  if (!pattern) return std::nullopt;
  return ScriptedCall{static_cast<Pattern>(*pattern), parts.size() > 2 ? static_cast<int>(numberIn(parts[2])) : -1,
                      std::strtoull(parts[1].c_str(), nullptr, 10)};
}

std::optional<Fault> parsedFault(const std::string& text) {
  const auto parts = split(text, ':');
  if (parts.size() != 5) return std::nullopt;
  const auto kind = indexOf(kFaultNames, parts[0]);
  if (!kind) return std::nullopt;
  return Fault{static_cast<Fault::Kind>(*kind), static_cast<int>(numberIn(parts[1])),
               static_cast<int>(numberIn(parts[2])), numberIn(parts[3]), numberIn(parts[4])};
}

// As it would be on fewer machines or ranks.
std::optional<Script> fitted(Script script, std::vector<int> machines) {
  if (machines.empty()) return std::nullopt;
  script.machines = std::move(machines);
  script.sites = std::min<int>(script.sites, static_cast<int>(script.machines.size()));
  const int world = script.world();
  for (ScriptedCall& call : script.calls) call.root = std::min(call.root, world - 1);
  std::erase_if(script.faults, [&](const Fault& fault) {
    const bool isOfMachines = fault.kind == Fault::Kind::Cut || fault.kind == Fault::Kind::Sever;
    const int most = isOfMachines ? static_cast<int>(script.machines.size()) : world;
    return fault.who >= most || (isOfMachines && fault.other >= most);
  });
  return script;
}

}  // namespace

int Script::world() const { return std::accumulate(machines.begin(), machines.end(), 0); }

// Of members also what lasts for about as long as their heartbeats wait.
bool Script::isFatal(const Fault& fault) const {
  switch (fault.kind) {
    case Fault::Kind::Kill:
    case Fault::Kind::Sever: return true;
    case Fault::Kind::Lose: return heartbeatMs > 0;
    case Fault::Kind::Pause:
    case Fault::Kind::Cut: return heartbeatMs > 0 && fault.amount > heartbeatMs * 1000 / 2;
    default: return false;
  }
}

std::string Script::text() const {
  std::ostringstream out;
  out << "seed=" << seed << " machines=";
  for (std::size_t i = 0; i < machines.size(); ++i) out << (i == 0 ? "" : ",") << machines[i];
  out << " interleaved=" << interleaved << " sites=" << sites << " staging=" << stagingKiB << " slice=" << sliceKiB
      << " eager=" << eagerKiB << " credit=" << creditKiB << " copied=" << copiedKiB << " waits=" << waits
      << " lanes=" << lanes << " weighted=" << weighted << " heartbeat=" << heartbeatMs;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const ScriptedCall& call = calls[i];
    out << (i == 0 ? " calls=" : ",") << kPatternNames[static_cast<std::size_t>(call.pattern)] << ':' << call.elements;
    if (call.root >= 0) out << ':' << call.root;
  }
  for (std::size_t i = 0; i < faults.size(); ++i) {
    const Fault& fault = faults[i];
    out << (i == 0 ? " faults=" : ",") << kFaultNames[static_cast<std::size_t>(fault.kind)] << ':' << fault.who << ':'
        << fault.other << ':' << fault.atMicros << ':' << fault.amount;
  }
  return out.str();
}

Script drawn(std::uint64_t seed, bool ofMembers) {
  std::mt19937_64 random(seed);
  Script script;
  script.seed = seed;
  const auto worlds = layouts();
  script.machines = worlds[random() % worlds.size()];
  script.interleaved = random() % 4 == 0;
  const auto machines = static_cast<int>(script.machines.size());
  if (machines > 2 && random() % 4 == 0) script.sites = 2;
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
  if (ofMembers) drawMembers(random, script);
  script.weighted = random() % 2 == 0;
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
    } else if (key == "sites") {
      script.sites = static_cast<int>(number);
    } else if (key == "waits") {
      script.waits = number != 0;
    } else if (key == "weighted") {
      script.weighted = number != 0;
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
    if (script.calls[i].pattern != Pattern::AllReduce)
      add([i](Script& one) { one.calls[i] = {.elements = one.calls[i].elements}; });
  }
  if (script.interleaved) add([](Script& one) { one.interleaved = false; });
  if (script.sites > 1) add([](Script& one) { one.sites = 1; });
  if (script.waits) add([](Script& one) { one.waits = false; });
  if (script.lanes > 0) add([](Script& one) { --one.lanes; });
  if (script.weighted) add([](Script& one) { one.weighted = false; });
  if (script.heartbeatMs > 0) add([](Script& one) { one.heartbeatMs = 0; });
  return shorter;
}

}  // namespace fairring::testing
