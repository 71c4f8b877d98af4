// Plants troubles in trainings, in virtual time (simulation/training.h), and writes the traces of their ranks, each
// training's as a group. Prints who made each of them slow as a line of JSON; tests/stragglers asks the traces for it.
#include <array>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

#include "training.h"

namespace {

using namespace fairring::simulation;  // NOLINT(google-build-using-namespace): all of it is used here

constexpr const char* kUsage =
    "stragglers DIRECTORY FROM SEEDS [KIND]   trainings with each trouble, or with this one, from the seeds FROM on\n";

struct Kind {
  Trouble::Kind kind;
  const char* name;
};

constexpr std::array kKinds{Kind{Trouble::Kind::None, "none"},
                            Kind{Trouble::Kind::LateRank, "late rank"},
                            Kind{Trouble::Kind::LateMachine, "late machine"},
                            Kind{Trouble::Kind::LateInput, "late input"},
                            Kind{Trouble::Kind::SlowLink, "slow link"},
                            Kind{Trouble::Kind::SlowCore, "slow core"},
                            Kind{Trouble::Kind::LateBucket, "late bucket"},
                            Kind{Trouble::Kind::BusyCore, "busy core"},
                            Kind{Trouble::Kind::LossyLink, "lossy link"},
                            Kind{Trouble::Kind::SmallStaging, "small staging"}};

// Who it is, as findings name it.
std::string whoIsIt(const Trouble& trouble) {
  switch (trouble.kind) {
    case Trouble::Kind::None:
    case Trouble::Kind::SmallStaging: break;
    case Trouble::Kind::LateRank:
    case Trouble::Kind::LateInput:
    case Trouble::Kind::LateBucket:
    case Trouble::Kind::BusyCore:
    case Trouble::Kind::SlowCore: return fairring::concat("rank ", trouble.who);
    case Trouble::Kind::LateMachine:
    case Trouble::Kind::LossyLink:
    case Trouble::Kind::SlowLink: return fairring::concat("machine host", trouble.who);
  }
  return "";
}

void play(const std::string& directory, const Kind& kind, std::uint64_t seed) {
  Training training = drawnTraining(seed, kind.kind);
  const std::string name = fairring::concat(kind.name, ' ', seed);
  const Trained trained = carriedOut(training, name);
  for (const fairring::TraceFacts& facts : trained.facts) {
    const auto rank = static_cast<std::size_t>(facts.rank);
    fairring::writeTraceFile(directory, name, facts.rank, fairring::chromeTrace(facts, trained.records[rank]));
  }
  const std::string who = whoIsIt(training.trouble);
  training.trouble.kind = Trouble::Kind::None;
  const double without = carriedOut(training, name).stepSeconds;
  std::cout << R"({"group": ")" << name << R"(", "planted": ")" << kind.name << R"(", "who": ")" << who
            << R"(", "step_seconds": )" << trained.stepSeconds << ", \"without\": " << without << "}\n"
            << std::flush;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4 && count != 5) {
    std::cerr << kUsage;
    return 2;
  }
  const std::uint64_t first = std::strtoull(arguments[2], nullptr, 10);
  const std::uint64_t seeds = std::strtoull(arguments[3], nullptr, 10);
  try {
    for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
      for (const Kind& kind : kKinds) {
        if (count == 4 || std::string(arguments[4]) == kind.name) play(arguments[1], kind, seed);
      }
    }
  } catch (const std::exception& error) {
    std::cerr << "stragglers: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
