// The ranks of a group as one of them sees them: which are its neighbours (those of its machine and of its rails),
// where these are reached, and what any of them is called in messages. Immutable once made; any thread.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "group/rank_facts.h"
#include "plan/topology.h"
#include "transport/connector.h"
#include "transport/transport.h"

namespace fairring {

class Neighbours {
 public:
  // facts[r] is rank r's; rails: with whom any of its calls exchanges above its machine, those on a device too. Throws
  // Failure(Configuration) where the facts don't fit together.
  Neighbours(const Topology& topology, std::set<int> rails, std::vector<RankFacts> facts, int rank);

  const std::vector<int>& local() const { return local_; }  // of this machine, ascending, this rank among them
  const std::set<int>& rails() const { return rails_; }     // that this one exchanges with above the machine
  bool isLocal(int rank) const;
  bool isOnSite(int rank) const { return facts(rank).place.site == facts(rank_).place.site; }
  const Transport& transportTo(int peer, const Transports& transports) const {
    return isOnSite(peer) ? transports.rail : transports.site;
  }
  // The addresses at which the peer reaches this rank; then those at which this rank reaches the peer.
  const std::vector<std::string>& addressesTowards(int peer) const {
    return facts(rank_).addressesFrom(facts(peer).place.site);
  }
  const std::vector<std::string>& addressesOf(int peer) const {
    return facts(peer).addressesFrom(facts(rank_).place.site);
  }
  const RankFacts& facts(int rank) const { return facts_[static_cast<std::size_t>(rank)]; }

  std::set<int> above() const;                    // neighbours that connect to this one, not the other way round
  SocketAddress listenAddressOf(int peer) const;  // where its process listens for other machines

  ConnectionSpec controlTo(int peer) const;
  ConnectionSpec messageLaneTo(int peer) const;  // the one that this rank makes
  // Every connection that this rank needs for calls of all ranks.
  std::vector<ConnectionSpec> wanted(const Transports& transports) const;
  std::vector<ConnectionSpec> lanesTo(int peer, std::uint32_t perPair) const;  // of interfaces

  std::string who(int rank) const;  // "rank 3 (host)"
  std::string who(const std::set<int>& ranks) const;
  Error unreachable(int peer, const Error& error) const;

 private:
  SocketAddress nearestAddressOf(int peer) const;

  const std::vector<RankFacts> facts_;
  const int rank_;
  const std::vector<int> local_;
  const std::set<int> rails_;
};

}  // namespace fairring
