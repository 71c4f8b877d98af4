#include "group/rank_facts.h"

#include <algorithm>
#include <cstddef>
#include <map>

namespace fairring {

namespace {

bool isLoopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

}  // namespace

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
    const std::string& own = one.device.machine.empty() ? one.place.machine : one.device.machine;
    places.push_back({joined.try_emplace(one.place.machine, own).first->second, one.place.site});
  }
  return places;
}

std::string deviceObstacle(const std::vector<RankFacts>& facts) {
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    const std::string& obstacle = facts[rank].device.obstacle;
    if (!obstacle.empty()) return concat("rank ", rank, " (", facts[rank].hostname, "): ", obstacle);
  }
  return {};
}

void checkSettings(const std::vector<RankFacts>& facts) {
  for (std::size_t rank = 1; rank < facts.size(); ++rank) {
    check(facts[rank].settings == facts[0].settings, ErrorKind::Configuration,
          "settings differ between ranks: rank 0 (", facts[0].hostname, ") has ", facts[0].settings, "; rank ", rank,
          " (", facts[rank].hostname, ") has ", facts[rank].settings, "; give all ranks the same FAIRRING_* variables");
  }
}

void checkAddresses(const std::vector<RankFacts>& facts) {
  const auto elsewhere = std::ranges::find_if(
      facts, [&](const RankFacts& other) { return other.place.machine != facts[0].place.machine; });
  if (elsewhere == facts.end()) return;
  const auto loopbackOf = [](const RankFacts& one) {
    for (const auto* addresses : {&one.addresses, &one.siteAddresses}) {
      if (!addresses->empty() && isLoopback(addresses->front())) return addresses->front();
    }
    return std::string();
  };
  const bool all = std::ranges::all_of(facts, [&](const RankFacts& one) { return !loopbackOf(one).empty(); });
  for (std::size_t rank = 0; rank < facts.size() && !all; ++rank) {
    const std::string address = loopbackOf(facts[rank]);
    check(address.empty(), ErrorKind::Configuration, "rank ", rank, " (", facts[rank].hostname, ") listens on ",
          address, ", which other machines can't reach; set TP_SOCKET_IFNAME there, or FAIRRING_SITE_IFNAME, to the ",
          "interface of the job's network");
  }
}

}  // namespace fairring
