#include "group/transport_choice.h"

#include <algorithm>
#include <cstddef>
#include <functional>

#include "base/error.h"

namespace fairring {

namespace {

// For packets between two ports that may not reach each other: of two fabrics that are named alike, for one.
constexpr std::chrono::milliseconds kPatienceWithRdma{5'000};

using Includes = std::function<bool(const RankFacts& one, const RankFacts& other)>;

std::string named(std::size_t rank, const RankFacts& facts) { return concat("rank ", rank, " (", facts.hostname, ")"); }

// What keeps two ranks from RDMA that exchange by a level: the first that has none, else fabrics that differ; empty
// where nothing does.
std::string rdmaObstacle(const std::vector<RankFacts>& facts, const Includes& exchange) {
  std::string apart;
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    const RankFacts& here = facts[rank];
    const auto first = std::ranges::find_if(facts, [&](const RankFacts& other) { return exchange(here, other); });
    if (first == facts.end()) continue;
    if (!here.rdmaObstacle.empty()) return concat(named(rank, here), ": ", here.rdmaObstacle);
    if (!apart.empty() || here.rdmaFabric == first->rdmaFabric) continue;
    const auto other = static_cast<std::size_t>(first - facts.begin());
    apart = concat(named(rank, here), " is on the fabric '", here.rdmaFabric, "' and ", named(other, *first), " on '",
                   first->rdmaFabric, "', which may not reach each other");
  }
  return apart;
}

bool onOneSite(const RankFacts& one, const RankFacts& other) {
  return one.place.site == other.place.site && one.place.machine != other.place.machine;
}

bool onOtherSites(const RankFacts& one, const RankFacts& other) { return one.place.site != other.place.site; }

bool anyExchange(const std::vector<RankFacts>& facts, const Includes& exchange) {
  return std::ranges::any_of(facts, [&](const RankFacts& one) {
    return std::ranges::any_of(facts, [&](const RankFacts& other) { return exchange(one, other); });
  });
}

void refuse(const Transport& transport, const std::string& obstacle) {
  check(obstacle.empty(), ErrorKind::Configuration, "FAIRRING_TRANSPORT=", transport.name == "ibv" ? "tensorpipe:" : "",
        transport.name, " can't be used: ", obstacle, " (auto takes TCP instead)");
}

// Where RDMA is not taken, "auto" is the first.
const Transport& named(const std::string& name, const std::vector<Transport>& transports) {
  const auto found = std::ranges::find(transports, name, &Transport::name);
  check(found != transports.end() || name == "auto", ErrorKind::Configuration, "there is no transport '", name, "'");
  return found == transports.end() ? transports.front() : *found;
}

}  // namespace

const Transport& automaticRdma(const std::vector<Transport>& transports) {
  return *std::ranges::find_if(transports, &Transport::isRdma);
}

TransportChoice chooseTransport(const TransportSettings& settings, const std::vector<RankFacts>& facts,
                                const std::vector<Transport>& transports) {
  TransportChoice choice{{named(settings.rail, transports), named(settings.site, transports)}, {}};
  if (choice.transports.site.isRdma) refuse(choice.transports.site, rdmaObstacle(facts, onOtherSites));
  const bool isAsked = settings.rail == "auto" || choice.transports.rail.isRdma;
  if (!isAsked || !anyExchange(facts, onOneSite)) return choice;
  const std::string obstacle = rdmaObstacle(facts, onOneSite);
  if (choice.transports.rail.isRdma) refuse(choice.transports.rail, obstacle);
  if (obstacle.empty()) {
    if (choice.transports.rail.isRdma) return choice;
    choice.transports.rail = automaticRdma(transports);
    choice.transports.rail.tcpAfter = kPatienceWithRdma;
    return choice;
  }
  choice.rdmaRefused = obstacle;
  choice.rdmaIsThere = std::ranges::any_of(facts, [](const RankFacts& one) { return !one.rdmaFabric.empty(); });
  return choice;
}

}  // namespace fairring
