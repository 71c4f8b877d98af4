// Plays scripts of the engine in virtual time (simulation/trial.h), each drawn from a seed, for as long as it
// is told, and stops at the first that fails: prints its seed, what broke, and a shorter script that breaks likewise.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <string>

#include "trial.h"

namespace {

using fairring::testing::Kind;
using fairring::testing::Script;
using fairring::testing::Verdict;

constexpr const char* kUsage =
    "simulate [--seconds S | --seeds N] [--from SEED]   scripts drawn from SEED, SEED+1, ...; default: 10 s from a\n"
    "                                                   random one\n"
    "         [--of members|rounds|chains]              their ranks are members of a group; its members change; one\n"
    "                                                   of them holds all up\n"
    "simulate --seed SEED                               one of them again\n"
    "simulate --script 'TEXT'                           a script as a failure prints it\n";

struct Totals {
  std::uint64_t scripts = 0;
  std::uint64_t withErrors = 0;
  std::uint64_t events = 0;
  double seconds = 0;
  std::uint64_t joins = 0;
  std::uint64_t steps = 0;
  std::map<std::string, std::uint64_t> faults;
};

int report(const Script& script, const Verdict& verdict) {
  if (verdict) {
    std::cout << "holds after " << verdict.events << " events, " << verdict.seconds << " virtual seconds"
              << (verdict.failed ? ", with typed errors" : "") << "; bits " << std::hex << verdict.bits << "\n";
    return 0;
  }
  std::cout << "FAILED: " << verdict.broken << "\n  seed " << script.seed << ": " << script.text() << "\n"
            << std::flush;
  const Script shorter = fairring::testing::shrunk(script);
  std::cout << "  shorter: " << fairring::testing::play(shorter).broken << "\n  again: simulate --script '"
            << shorter.text() << "'\n";
  return 1;
}

void count(Totals& totals, const Verdict& verdict) {
  static constexpr const char* kNames[] = {"deaths",           "pauses",
                                           "slow ranks",       "cut links",
                                           "severed links",    "breaks of a rank's lanes",
                                           "lost stores",      "late ranks",
                                           "idle ranks",       "refusing listeners",
                                           "strangers",        "frozen machines",
                                           "leaps of a clock", "failed allocations"};
  ++totals.scripts;
  totals.withErrors += verdict.failed ? 1 : 0;
  totals.events += verdict.events;
  totals.seconds += verdict.seconds;
  totals.joins += verdict.joins;
  totals.steps += verdict.steps;
  for (const auto& fault : verdict.struck) ++totals.faults[kNames[static_cast<std::size_t>(fault.kind)]];
}

// The same script once more, with other delays where it must have the same result: the bits depend on no schedule.
Verdict playTwice(const Script& script) {
  Verdict verdict = fairring::testing::play(script);
  if (!verdict || script.seed % 8 != 0) return verdict;
  const Verdict again = fairring::testing::play(script);
  if (again.events != verdict.events || again.bits != verdict.bits)
    verdict.broken = "the same seed took another course the second time";
  return verdict;
}

int playMany(std::uint64_t from, std::uint64_t seeds, double seconds, Kind kind) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  std::cout << "from seed " << from << "\n" << std::flush;
  Totals totals;
  for (std::uint64_t seed = from; seeds > 0 ? seed < from + seeds : passed() < seconds; ++seed) {
    const Script script = fairring::testing::drawn(seed, kind);
    const Verdict verdict = playTwice(script);
    count(totals, verdict);
    if (!verdict) {
      std::cout << "after " << totals.scripts << " scripts, " << passed() << " s: ";
      return report(script, verdict);
    }
  }
  std::cout << totals.scripts << " scripts hold, " << totals.withErrors
            << " of them with typed errors: " << totals.events << " events, " << totals.seconds
            << " virtual seconds, in " << passed() << " s;";
  for (const auto& [name, number] : totals.faults) std::cout << " " << number << " " << name;
  if (totals.steps > 0) std::cout << " " << totals.joins << " joins, " << totals.steps << " steps that counted";
  std::cout << "\n";
  return 0;
}

// The scripts that --of asks for.
Kind kindOf(const std::string& text) {
  static const std::map<std::string, Kind> kKinds{
      {"members", Kind::Members}, {"rounds", Kind::Rounds}, {"chains", Kind::Chains}};
  const auto found = kKinds.find(text);
  return found == kKinds.end() ? Kind::Any : found->second;
}

}  // namespace

int main(int count, char** arguments) {
  std::map<std::string, std::string> options;
  for (int i = 1; i + 1 < count; i += 2) options[arguments[i]] = arguments[i + 1];
  if (count % 2 == 0) {
    std::cerr << kUsage;
    return 2;
  }
  if (options.contains("--script")) {
    const auto script = fairring::testing::parsed(options["--script"]);
    if (!script) {
      std::cerr << "that is no script\n" << kUsage;
      return 2;
    }
    return report(*script, fairring::testing::play(*script));
  }
  const auto number = [&](const char* option) { return std::strtoull(options[option].c_str(), nullptr, 10); };
  if (options.contains("--seed")) {
    const Script script = fairring::testing::drawn(number("--seed"), kindOf(options["--of"]));
    std::cout << script.text() << "\n";
    return report(script, fairring::testing::play(script));
  }
  const std::uint64_t from = options.contains("--from") ? number("--from") : std::random_device{}();
  const double seconds = options.contains("--seconds") ? std::strtod(options["--seconds"].c_str(), nullptr) : 10;
  return playMany(from, options.contains("--seeds") ? number("--seeds") : 0, seconds, kindOf(options["--of"]));
}
