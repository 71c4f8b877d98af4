// Which rank owns which bytes of a slice at each level. Pure arithmetic; immutable once made.
//
// At level 0 there is one rail, the whole slice, owned by the ranks of the machine. A rail is cut into as many pieces
// as it has owners; owner i's shard of it is piece i. At the next level the groups (machines, then sites) may be cut
// differently; a rail is then an interval between neighbouring cuts of the union of all groups' cuts, and has exactly
// one owner per group. Equal machines: rails = local ranks. Machines of 7 and 8 ranks: 14 rails.
//
// Cuts fall on multiples of 64 bytes from the slice's beginning, so no rank carries more than ceil(N/g) + 64 bytes of
// a slice of N bytes on a machine of g ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/topology.h"

namespace fairring {

struct Range {  // of bytes of a slice, the end not included
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  std::uint64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// Piece `index` of `range` cut into `parts` nearly equal pieces: disjoint, in order, they cover the range; some are
// empty when it is small.
Range piece(Range range, int parts, int index);

struct Rail {
  Range range;
  std::vector<int> owners;    // ranks, one per group of the level below, in the order of summation
  std::vector<Range> shards;  // shards[i] is owners[i]'s, and may be empty
  int self = -1;              // this rank's index among the owners

  const Range& own() const { return shards[static_cast<std::size_t>(self)]; }  // this rank's shard
};

struct LevelLayout {
  int level = 0;
  int groups = 0;           // that each rail's owners stand in, as Topology has them: summed group by group
  int root = -1;            // among each rail's owners, the one that stands for the call's root; -1: none of them
  std::vector<Rail> rails;  // those that this rank is an owner of, in ascending order of range; none is empty
};

// One slice as one rank sees it: an entry for each of topology.levels().
struct Layout {
  std::uint64_t bytes = 0;
  std::vector<LevelLayout> levels;

  const LevelLayout& at(int level) const;  // the entry of that level; throws std::out_of_range where there is none
};

Layout layoutSlice(const Topology& topology, int rank, std::uint64_t bytes);

// A slice of so many bytes whose cuts fall on multiples of several grains, because its elements cross between sites in
// blocks. It is laid out as one whose bytes are units of several bytes.
Layout inBytes(const Layout& units, std::uint64_t unitBytes, std::uint64_t bytes);

// The same slice of a call with that root.
Layout withRoot(Layout layout, const Topology& topology, int rank, int root);

}  // namespace fairring
