#include "group/neighbours.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace fairring {

Neighbours::Neighbours(const Topology& topology, std::set<int> rails, std::vector<RankFacts> facts, int rank)
    : facts_(std::move(facts)),
      rank_(rank),
      local_(topology.ranksOf(topology.machineOf(rank))),
      rails_(std::move(rails)) {
  checkSettings(facts_);
  checkAddresses(facts_);
}

bool Neighbours::isLocal(int rank) const { return facts(rank).place.machine == facts(rank_).place.machine; }

std::set<int> Neighbours::above() const {
  std::set<int> peers(rails_.upper_bound(rank_), rails_.end());
  peers.insert(std::ranges::upper_bound(local_, rank_), local_.end());
  return peers;
}

SocketAddress Neighbours::listenAddressOf(int peer) const {
  return tcpAddress(addressesOf(peer).front(), facts(peer).port);
}

// Inside the machine its local socket.
SocketAddress Neighbours::nearestAddressOf(int peer) const {
  return isLocal(peer) ? localAddressOf(facts(peer).address(), facts(peer).port) : listenAddressOf(peer);
}

ConnectionSpec Neighbours::controlTo(int peer) const { return {peer, Purpose::Control, nearestAddressOf(peer)}; }

ConnectionSpec Neighbours::messageLaneTo(int peer) const {
  return {
      .peer = peer, .purpose = Purpose::MessageLane, .address = nearestAddressOf(peer), .lane = rank_ > peer ? 0U : 1U};
}

std::vector<ConnectionSpec> Neighbours::wanted(const Transports& transports) const {
  std::vector<ConnectionSpec> wanted;
  for (const int peer : local_) {
    if (peer != rank_) wanted.push_back(controlTo(peer));
  }
  for (const int peer : rails_) {
    wanted.push_back(controlTo(peer));
    const Transport& transport = transportTo(peer, transports);
    if (transport.takesLanes) std::ranges::copy(lanesTo(peer, transport.lanes), std::back_inserter(wanted));
  }
  return wanted;
}

// The interfaces of both sides in turn, each with the other side's of the same place: both sides count alike.
std::vector<ConnectionSpec> Neighbours::lanesTo(int peer, std::uint32_t perPair) const {
  std::vector<ConnectionSpec> lanes;
  const std::vector<std::string>& here = addressesTowards(peer);
  const std::vector<std::string>& there = addressesOf(peer);
  const std::size_t pairs = std::max(here.size(), there.size());
  for (std::size_t lane = 0; lane < pairs * perPair; ++lane) {
    const std::string& to = there[lane % there.size()];
    const std::string& from = here[lane % here.size()];
    lanes.push_back({.peer = peer,
                     .purpose = Purpose::Lane,
                     .address = tcpAddress(to, facts(peer).port),
                     .lane = static_cast<std::uint32_t>(lane),
                     .source = pairs > 1 ? std::optional(tcpAddress(from, 0)) : std::nullopt});
  }
  return lanes;
}

// Also of ranks that peers speak of, which need not exist.
std::string Neighbours::who(int rank) const {
  const bool exists = rank >= 0 && static_cast<std::size_t>(rank) < facts_.size();
  return concat("rank ", rank, " (", exists ? facts(rank).hostname : "which there is not", ")");
}

std::string Neighbours::who(const std::set<int>& ranks) const {
  return joined(ranks, ", ", [this](int rank) { return who(rank); });
}

Error Neighbours::unreachable(int peer, const Error& error) const {
  const bool reached = error.kind() == ErrorKind::Configuration;  // and refused, by one side or the other
  return makeError(reached ? error.kind() : ErrorKind::Connection, who(rank_),
                   reached ? " can't speak to " : " can't reach ", who(peer), " at ",
                   isLocal(peer) ? "the local socket of " : "", addressesOf(peer).front(), " port ", facts(peer).port,
                   isLocal(peer) || facts(peer).interfacesBy.empty() ? "" : concat(" (", facts(peer).interfacesBy, ")"),
                   ": ", error.text(),
                   reached ? ""
                           : "; check that the machines reach each other on this network (TP_SOCKET_IFNAME names "
                             "the interface, FAIRRING_PORTS the ports, FAIRRING_MACHINE the machine)")
      .about({peer});
}

}  // namespace fairring
