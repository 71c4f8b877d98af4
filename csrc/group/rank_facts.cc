#include "group/rank_facts.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <map>
#include <sstream>

namespace fairring {

namespace {

constexpr char kSeparator = '\n';
constexpr char kComma = ',';
constexpr const char* kHead = "fairring facts 4";

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : std::string(1, kComma)) + text;
  return all;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::istringstream pieces(text);
  std::vector<std::string> parts;
  for (std::string piece; std::getline(pieces, piece, separator);) parts.push_back(piece);
  return parts;
}

// 0: no port.
int portIn(const std::string& text) {
  int port = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), port);
  return code == std::errc() && end == text.data() + text.size() && port < 65'536 ? std::max(port, 0) : 0;
}

// The system's own words may be among them.
std::string onOneLine(std::string text) {
  std::ranges::replace(text, kSeparator, ' ');
  return text;
}

bool isLoopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

}  // namespace

std::string encode(const RankFacts& facts) {
  return concat(kHead, kSeparator, facts.place.machine, kSeparator, facts.place.site, kSeparator, facts.hostname,
                kSeparator, joined(facts.addresses), kSeparator, facts.port, kSeparator, facts.rdmaFabric, kSeparator,
                onOneLine(facts.rdmaObstacle), kSeparator, joined(facts.siteAddresses), kSeparator,
                facts.device.machine, kSeparator, onOneLine(facts.device.obstacle), kSeparator, facts.settings);
}

RankFacts decodeFacts(const std::string& text) {
  const std::vector<std::string> parts = split(text, kSeparator);
  const bool ours = parts.size() == 12 && parts[0] == kHead;
  const int port = ours ? portIn(parts[5]) : 0;
  const std::vector<std::string> addresses = port > 0 ? split(parts[4], kComma) : std::vector<std::string>();
  check(!addresses.empty(), ErrorKind::Connection,
        "the store holds facts of a rank that are not of this version of fairring: '", text.substr(0, 80),
        "'; use the same version on all ranks");
  return {.place = {parts[1], parts[2]},
          .hostname = parts[3],
          .addresses = addresses,
          .port = port,
          .settings = parts[11],
          .rdmaFabric = parts[6],
          .rdmaObstacle = parts[7],
          .siteAddresses = split(parts[8], kComma),
          .device = {parts[9], parts[10]}};
}

Error ended(int rank, const RankFacts& there, const std::string& address, const std::string& group) {
  return makeError(ErrorKind::PeerDied, "rank ", rank, " (", there.hostname, ") died, or ended, before group ", group,
                   " was connected: nobody listens at ", address, " port ", there.port,
                   " any more; look at that rank's own output for the reason");
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
