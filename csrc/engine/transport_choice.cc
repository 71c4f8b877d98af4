#include "engine/transport_choice.h"

#include <algorithm>

#include "base/error.h"

namespace fairring {

namespace {

// The first rank that stands in the way, and why; empty where none does.
std::string rdmaObstacle(const std::vector<RankFacts>& facts) {
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    const RankFacts& here = facts[rank];
    if (!here.rdmaObstacle.empty()) return concat("rank ", rank, " (", here.hostname, "): ", here.rdmaObstacle);
    if (here.rdmaFabric != facts[0].rdmaFabric) {
      return concat("rank 0 (", facts[0].hostname, ") is on the fabric '", facts[0].rdmaFabric, "' and rank ", rank,
                    " (", here.hostname, ") on '", here.rdmaFabric, "', which may not reach each other");
    }
  }
  return {};
}

}  // namespace

TransportChoice chooseTransport(const std::string& setting, const std::vector<RankFacts>& facts) {
  using Pipes = Transport::Pipes;
  const bool severalMachines =
      std::ranges::any_of(facts, [&](const RankFacts& one) { return one.place.machine != facts[0].place.machine; });
  if (setting == "tcp" || (setting == "auto" && !severalMachines)) return {};
  if (setting != "auto" && setting != "ibv") return {{Pipes::TensorPipe, setting}, {}};
  const std::string obstacle = severalMachines ? rdmaObstacle(facts) : std::string();
  if (obstacle.empty()) return {{Pipes::TensorPipe, "ibv"}, {}};
  check(setting == "auto", ErrorKind::Configuration, "FAIRRING_TRANSPORT=tensorpipe:ibv can't be used: ", obstacle,
        " (auto takes TCP instead)");
  const bool isThere = std::ranges::any_of(facts, [](const RankFacts& one) { return !one.rdmaFabric.empty(); });
  return {{}, obstacle, isThere};
}

}  // namespace fairring
