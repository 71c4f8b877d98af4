#include "group/rank_facts.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>

namespace fairring {

namespace {

constexpr const char* kInterfaceAdvice =
    "; set TP_SOCKET_IFNAME on all ranks, or FAIRRING_SITE_IFNAME, to the interface of the job's network";

bool isLoopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

// The first one of loopback; empty if there is none.
std::string loopbackOf(const RankFacts& facts) {
  for (const auto* addresses : {&facts.addresses, &facts.siteAddresses}) {
    const auto found = std::ranges::find_if(*addresses, isLoopback);
    if (found != addresses->end()) return *found;
  }
  return {};
}

bool areApart(const RankFacts& one, const RankFacts& other) {
  return one.place.machine != other.place.machine && one.network != other.network;
}

std::string listensOn(const std::vector<RankFacts>& facts, std::size_t rank, const std::string& address) {
  const RankFacts& one = facts[rank];
  return concat("rank ", rank, " (", one.hostname, ") listens on ", address,
                one.interfacesBy.empty() ? "" : concat(" (", one.interfacesBy, ")"));
}

}  // namespace

std::string rankNamed(const std::vector<RankFacts>& facts, std::size_t rank) {
  return concat("rank ", rank, " (", facts[rank].hostname, "): ");
}

std::vector<Place> placesOf(const std::vector<RankFacts>& facts) {
  std::vector<Place> places;
  places.reserve(facts.size());
  for (const RankFacts& one : facts) places.push_back(one.place);
  return places;
}

std::vector<Place> devicePlacesOf(const std::vector<RankFacts>& facts) {
  std::map<std::string, std::string> joined;  // by machine
  std::vector<Place> places;
  places.reserve(facts.size());
  for (const RankFacts& one : facts) {
    std::string own = one.device.machine.empty() ? one.place.machine : one.device.machine;
    // Emulated machines of two sites may be one host.
    if (!one.place.site.empty()) own += concat(" in ", one.place.site);
    places.push_back({joined.try_emplace(one.place.machine, std::move(own)).first->second, one.place.site});
  }
  return places;
}

std::string deviceObstacle(const std::vector<RankFacts>& facts) {
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    const std::string& obstacle = facts[rank].device.obstacle;
    if (!obstacle.empty()) return rankNamed(facts, rank) + obstacle;
  }
  return {};
}

std::string deviceFabric(const std::vector<RankFacts>& facts) {
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    const std::string& fabric = facts[rank].device.fabric;
    if (fabric.empty()) continue;
    return concat(rankNamed(facts, rank), "NCCL has a network there that is faster than the host's memory: ", fabric);
  }
  return {};
}

std::string tooSmallDevice(const std::vector<RankFacts>& facts, int least) {
  const std::vector<Place> places = devicePlacesOf(facts);
  std::set<std::string> machines;
  const auto isNew = [&machines](const Place& place) { return machines.insert(place.machine).second; };
  if (std::ranges::all_of(places, isNew)) return {};
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    const int multiprocessors = facts[rank].device.multiprocessors;
    if (multiprocessors >= least) continue;
    return concat(rankNamed(facts, rank), "a device of its has ", multiprocessors,
                  " multiprocessors, and kernels of NCCL's that wait for one another have room on ", least);
  }
  return {};
}

void checkSettings(const std::vector<RankFacts>& facts) {
  for (std::size_t rank = 1; rank < facts.size(); ++rank) {
    if (facts[rank].settings == facts[0].settings) continue;
    throw Failure(makeError(ErrorKind::Configuration, "settings differ between ranks: rank 0 (", facts[0].hostname,
                            ") has ", facts[0].settings, "; rank ", rank, " (", facts[rank].hostname, ") has ",
                            facts[rank].settings, "; give all ranks the same FAIRRING_* variables")
                      .about({0, static_cast<int>(rank)}));
  }
}

// Both mistakes are made by naming an interface that every machine has for itself, such as lo or docker0. Ranks of one
// network namespace reach each other at any of its addresses, whatever machines they count as.
void checkAddresses(const std::vector<RankFacts>& facts) {
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    const std::string loopback = loopbackOf(facts[rank]);
    const auto isAway = [&](const RankFacts& other) { return areApart(other, facts[rank]); };
    if (loopback.empty() || std::ranges::none_of(facts, isAway)) continue;
    throw Failure(makeError(ErrorKind::Configuration, listensOn(facts, rank, loopback),
                            ", which other machines can't reach", kInterfaceAdvice)
                      .about({static_cast<int>(rank)}));
  }
  std::map<std::pair<std::string, std::string>, std::size_t> ranks;  // the first of each site and address
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    for (const std::string& address : facts[rank].addresses) {
      const std::size_t first = ranks.try_emplace({facts[rank].place.site, address}, rank).first->second;
      if (!areApart(facts[first], facts[rank])) continue;
      throw Failure(makeError(ErrorKind::Configuration, listensOn(facts, rank, address),
                              ", which other machines can't reach: rank ", first, " (", facts[first].hostname,
                              ") has that address too", kInterfaceAdvice)
                        .about({static_cast<int>(first), static_cast<int>(rank)}));
    }
  }
}

}  // namespace fairring
