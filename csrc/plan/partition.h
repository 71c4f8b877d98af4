// All rails of a slice, of any group at any level, whoever owns them: the recursion behind layout.h.
// Inside plan/ only; immutable.
//
// A group's partition says which of its ranks holds which part of the slice once its level is reduced. At level -1 a
// rank is a group of its own and holds the whole slice. At the levels above, the common refinement of the members'
// partitions gives the rails (inside one, every member has exactly one holder: its owner), and the rails' shards are
// the group's partition.
//
// All of this is cut as fractions of the slice, in units that products of small numbers divide, and only then brought
// down to grains. So cuts that are equal as fractions are equal in a slice of any size, and ranks that share a rail of
// some slice share one of the fractions too: peersOf() needs no size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "plan/layout.h"
#include "plan/topology.h"

namespace fairring {

int groupOf(const Topology& topology, int level, int rank);
int groupsAt(const Topology& topology, int level);
std::vector<int> membersOf(const Topology& topology, int level, int group);  // groups of the level below

inline constexpr std::uint64_t kWhole = 720720ULL * 720720ULL * 1024ULL;  // units of a slice

class Partitions {
 public:
  // The place of a cut in a slice, in bytes; never less for more units.
  using Cut = std::function<std::uint64_t(std::uint64_t units)>;

  // The topology must outlive this.
  Partitions(const Topology& topology, Cut cut);
  explicit Partitions(const Topology& topology);  // the fractions themselves

  // On multiples of the grain, of a slice of so many bytes.
  static Cut onGrains(std::uint64_t bytes);

  std::vector<Rail> of(int level, int group) const;  // in ascending order of range; `self` is left at -1
  // By rank, the first unit of what it holds when all levels are reduced. No two ranks have the same.
  std::vector<std::uint64_t> firstUnits() const;

 private:
  struct Held {
    Range range;
    int rank;
  };
  using Partition = std::vector<Held>;  // in ascending order, without gaps, none empty

  Partition partition(int level, int group) const;
  std::vector<Rail> fractionsOf(int level, int group) const;

  const Topology& topology_;
  Cut cut_;
};

// The layout of a slice that is cut so, as one rank sees it.
Layout layoutOf(const Partitions& rails, const Topology& topology, int rank, std::uint64_t bytes);

// The ranks that a rank exchanges with above its machine, over slices of every size: all owners that its rails ever
// have.
std::set<int> peersOf(const Topology& topology, int rank);

}  // namespace fairring
