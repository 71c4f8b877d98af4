// The rows of a sparse call that each rank, machine and site has. Immutable; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "exchange/row_set.h"
#include "plan/topology.h"

namespace fairring {

// The rows that each rank has: a list for each, ascending; or a bit for each possible row (kernels/key_bits.h).
struct KeysByRank {
  std::vector<std::vector<std::uint64_t>> lists;
  std::vector<std::span<const std::uint64_t>> bits;
};

class SparseRows {
 public:
  // values: this rank's rows, packed; they stay until the call is done.
  SparseRows(const Topology& topology, int rank, const KeysByRank& keys, std::uint64_t rowBytes,
             const std::byte* values);

  const std::vector<std::uint64_t>& all() const { return all_; }  // keys of the call's rows
  int rank() const { return rank_; }
  const std::byte* values() const { return values_; }

  // The rows that a rank contributes at a level: its own at level 0, above that all rows that were summed below.
  // At level 0 the rank is one of this machine, at level 1 one of this site.
  const RowSet& of(int level, int rank) const;
  const RowSet& mine(int level) const { return of(level, rank_); }
  // The largest contribution at that level, in bytes.
  std::uint64_t most(int level) const;

 private:
  static constexpr std::size_t kLevels = Topology::kLevels;

  std::vector<std::uint64_t> all_;
  const std::byte* values_;
  int rank_;
  std::array<std::vector<int>, kLevels> groupOf_;       // by rank: itself, its machine, its site
  std::array<std::map<int, RowSet>, kLevels> rowSets_;  // of each such group
};

}  // namespace fairring
