#include "backend/simulating.h"

#include <array>
#include <utility>

#include "simulation/experiment.h"

namespace fairring {

namespace py = pybind11;

namespace {

Pattern patternOf(const std::string& collective) {
  // A barrier is an all-reduce, of one byte.
  constexpr std::array kPatterns{std::pair("all-reduce", Pattern::AllReduce),
                                 std::pair("barrier", Pattern::AllReduce),
                                 std::pair("reduce-scatter", Pattern::ReduceScatter),
                                 std::pair("all-gather", Pattern::AllGather),
                                 std::pair("all-to-all", Pattern::AllToAll),
                                 std::pair("broadcast", Pattern::Broadcast),
                                 std::pair("reduce", Pattern::Reduce),
                                 std::pair("gather", Pattern::Gather),
                                 std::pair("scatter", Pattern::Scatter)};
  for (const auto& [name, pattern] : kPatterns) {
    if (collective == name) return pattern;
  }
  throw Failure(makeError(ErrorKind::Usage, "no collective '", collective, "' is simulated"));
}

void lookAtSignals() {
  const py::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

simulation::Cluster clusterOf(const SimulationQuestion& question) {
  const PlanQuestion& asked = question.cluster;
  simulation::Cluster cluster{.places = placesOf(asked),
                              .planner = {asked.totalMemoryBytes, asked.sliceBytes, costRowsOf(asked.rows)},
                              .grouping = groupingOf(asked),
                              .everySoOften = lookAtSignals};
  simulation::NetworkCosts& network = cluster.costs.network;
  network.bytesPerSecond = question.linkBytesPerSecond * simulation::NetworkCosts::kPayload;
  network.latencySeconds = question.latencySeconds;
  network.oversubscription = question.oversubscription;
  cluster.costs.core.cores = question.cores;
  cluster.costs.core.networkBytesPerSecond = question.coreBytesPerSecond;
  return cluster;
}

simulation::Outcome outcomeOf(const SimulationQuestion& question) {
  const simulation::Cluster cluster = clusterOf(question);
  if (!question.buckets.empty()) {
    const simulation::Model model{question.buckets, question.forwardSeconds, question.backwardSeconds};
    return simulation::carriedOut(cluster, model, question.times);
  }
  if (question.collective == "send-recv")
    return simulation::carriedOut(cluster, simulation::Messages{question.cluster.bytes, question.times});
  return simulation::carriedOut({.cluster = cluster,
                                 .pattern = patternOf(question.collective),
                                 .bytes = question.cluster.bytes,
                                 .calls = question.times});
}

}  // namespace

py::dict simulate(const SimulationQuestion& question) {
  simulation::Outcome outcome;
  {
    const py::gil_scoped_release unlocked;
    outcome = outcomeOf(question);
  }
  py::dict answer;
  answer["seconds"] = outcome.seconds;
  answer["messages"] = outcome.messages;
  answer["link_bytes"] = outcome.linkBytes;
  answer["connections"] = outcome.mostConnections;
  answer["events"] = outcome.events;
  return answer;
}

py::dict simulatedHardware() {
  py::dict hardware;
  hardware["latency_seconds"] = simulation::NetworkCosts().latencySeconds;
  hardware["core_bytes_per_second"] = simulation::CoreCosts().networkBytesPerSecond;
  return hardware;
}

}  // namespace fairring
