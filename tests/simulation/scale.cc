// What calls take on clusters that nobody has, in virtual time: a line of JSON for each combination of what is asked
// for. docs/simulation.md describes the model; simulation/costs.h has its constants.
#include <chrono>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "plan/cost_rows.h"
#include "simulation/experiment.h"

namespace {

using fairring::Pattern;
using namespace fairring::simulation;  // NOLINT(google-build-using-namespace): all of it is used here

constexpr const char* kUsage =
    "scale [--machines 8,64] [--ranks 8] [--bytes 4096,26214400] [--gbit 1,100] [--collective all-reduce]\n"
    "      [--calls 1] [--cores 0] [--oversubscription 1] [--shared-memory no]\n"
    "Lists are numbers with commas between them. --collective: all-reduce, reduce-scatter or all-gather; --calls: "
    "that\n"
    "follow each other; --cores: that all ranks share, 0: each has its own; --shared-memory yes: the real exchange\n"
    "within machines instead of its stand-in, for some hundred ranks at most.\n";

std::vector<double> numbers(const std::string& text) {
  std::vector<double> list;
  std::istringstream in(text);
  for (std::string one; std::getline(in, one, ',');) list.push_back(std::strtod(one.c_str(), nullptr));
  return list;
}

// VmHWM: the most that the process has had so far.
double memoryMiB() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtod(line.c_str() + 6, nullptr) / 1024;
  }
  return 0;
}

Pattern patternOf(const std::string& name) {
  static const std::map<std::string, Pattern> kNames{{"all-reduce", Pattern::AllReduce},
                                                     {"reduce-scatter", Pattern::ReduceScatter},
                                                     {"all-gather", Pattern::AllGather}};
  const auto found = kNames.find(name);
  fairring::check(found != kNames.end(), fairring::ErrorKind::Usage, "no collective '", name, "' is timed");
  return found->second;
}

void show(const Experiment& experiment, double machines, double ranks, double gbit) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const Outcome outcome = carriedOut(experiment);
  const double real = std::chrono::duration<double>(Clock::now() - begin).count();
  std::cout << "{\"machines\": " << machines << ", \"ranks\": " << ranks << ", \"bytes\": " << experiment.bytes
            << ", \"gbit\": " << gbit << ", \"oversubscription\": " << experiment.costs.network.oversubscription
            << ", \"seconds\": " << outcome.seconds << ", \"messages\": " << outcome.messages
            << ", \"link_bytes\": " << outcome.linkBytes << ", \"connections\": " << outcome.mostConnections
            << ", \"events\": " << outcome.events << ", \"real_seconds\": " << real
            << ", \"memory_mib\": " << memoryMiB() << "}\n"
            << std::flush;
}

int run(std::map<std::string, std::string> options) {
  for (const double machines : numbers(options["--machines"])) {
    for (const double ranks : numbers(options["--ranks"])) {
      for (const double gbit : numbers(options["--gbit"])) {
        for (const double bytes : numbers(options["--bytes"])) {
          Experiment experiment{.places = {},
                                .planner = {50ULL << 20, 25ULL << 20, fairring::builtInRows("tcp", "tcp")},
                                .costs = {},
                                .pattern = patternOf(options["--collective"]),
                                .bytes = static_cast<std::uint64_t>(bytes),
                                .calls = static_cast<int>(std::strtol(options["--calls"].c_str(), nullptr, 10)),
                                .sharedMemory = options["--shared-memory"] == "yes"};
          experiment.costs.core.cores = static_cast<int>(std::strtol(options["--cores"].c_str(), nullptr, 10));
          experiment.costs.network.bytesPerSecond = gbit * 1e9 / 8 * NetworkCosts::kPayload;
          experiment.costs.network.oversubscription = std::strtod(options["--oversubscription"].c_str(), nullptr);
          experiment.planner.rows[1].bytesPerSecond = gbit * 1e9 / 8 / ranks;
          for (int machine = 0; machine < static_cast<int>(machines); ++machine) {
            for (int rank = 0; rank < static_cast<int>(ranks); ++rank)
              experiment.places.push_back({"machine" + std::to_string(machine), "site"});
          }
          show(experiment, machines, ranks, gbit);
        }
      }
    }
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  std::map<std::string, std::string> options{{"--machines", "8"},      {"--ranks", "8"},
                                             {"--bytes", "26214400"},  {"--gbit", "100"},
                                             {"--calls", "1"},         {"--collective", "all-reduce"},
                                             {"--cores", "0"},         {"--oversubscription", "1"},
                                             {"--shared-memory", "no"}};
  for (int i = 1; i < count; i += 2) {
    if (i + 1 == count || !options.contains(arguments[i])) {
      std::cerr << kUsage;
      return 2;
    }
    options[arguments[i]] = arguments[i + 1];
  }
  try {
    return run(options);
  } catch (const std::exception& error) {
    std::cerr << "scale: " << error.what() << "\n";
    return 1;
  }
}
