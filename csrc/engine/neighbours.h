// The ranks of a group as one of them sees them: which are its neighbours (those of its machine and of its rails),
// where these are reached, and what any of them is called in messages. Immutable once made; any thread.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "engine/rank_facts.h"
#include "exchange/links.h"
#include "exchange/transport.h"
#include "plan/topology.h"

namespace fairring {

class Neighbours {
 public:
  // facts[r] is rank r's. Throws Failure(Configuration) where the facts don't fit together.
  Neighbours(const Topology& topology, std::vector<RankFacts> facts, int rank);

  const std::vector<int>& local() const { return local_; }  // of this machine, ascending, this rank among them
  const std::set<int>& rails() const { return rails_; }     // that own a shard of one of this rank's rails
  bool isLocal(int rank) const;
  const RankFacts& facts(int rank) const { return facts_[static_cast<std::size_t>(rank)]; }

  // Every connection that this rank needs.
  std::vector<Wanted> wanted(const Transport& transport) const;

  std::string who(int rank) const;  // "rank 3 (host)"
  std::string who(const std::set<int>& ranks) const;
  Error unreachable(int peer, const Error& error) const;

 private:
  void addLanes(int peer, std::uint32_t perPair, std::vector<Wanted>& wanted) const;

  const std::vector<RankFacts> facts_;
  const int rank_;
  const std::vector<int> local_;
  const std::set<int> rails_;
};

}  // namespace fairring
