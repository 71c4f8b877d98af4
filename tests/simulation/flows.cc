// What the model of the network says of some flows that begin at once. Reads a line for each flow, "FROM TO BYTES", of
// machines, and prints when the last byte of each is there, in seconds, a line each. benchmarks/flows.py asks SimGrid
// for the same.
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "simulation/network.h"

namespace {

using namespace fairring::simulation;  // NOLINT(google-build-using-namespace): all of it is used here

constexpr const char* kUsage =
    "flows MACHINES BYTES_PER_SECOND LATENCY OVERSUBSCRIPTION [MACHINE TIMES]...   TIMES: its link is slower\n";

struct Flow {
  int from;
  int to;
  std::uint64_t bytes;
  Time end{0};
};

}  // namespace

int main(int count, char** arguments) {
  if (count < 5 || count % 2 == 0) {
    std::cerr << kUsage;
    return 2;
  }
  const auto number = [&](int i) { return std::strtod(arguments[i], nullptr); };
  std::vector<int> machines(static_cast<std::size_t>(number(1)));
  for (std::size_t machine = 0; machine < machines.size(); ++machine) machines[machine] = static_cast<int>(machine);
  EventQueue events;
  Network network(events, machines,
                  {.bytesPerSecond = number(2), .latencySeconds = number(3), .oversubscription = number(4)});
  for (int i = 5; i < count; i += 2) network.slow(static_cast<int>(number(i)), number(i + 1));
  std::vector<Flow> flows;
  for (Flow flow{}; std::cin >> flow.from >> flow.to >> flow.bytes;) flows.push_back(flow);
  for (Flow& flow : flows) {
    network.send(flow.from, flow.to,
                 {.bytes = flow.bytes, .begun = [] {}, .whole = [&flow, &events] { flow.end = events.now(); }});
  }
  while (!events.empty()) events.runNext();
  for (const Flow& flow : flows) std::cout << secondsOf(flow.end) << "\n";
  return 0;
}
