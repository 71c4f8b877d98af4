// What the exchanges know of a sparse call: which of its rows each rank, machine and site has. So contributions travel
// packed, without the rows that they lack and without indices, and every rank knows what each of them holds.
//
//   staging of a slice   image | own contribution | per step that reduces: what is received, and, if it is not the last
//                        such step, its sum
//
// All but the image is packed; sums of the last reducing step go to the image, where every row has its place. The image
// and all-gathers are those of any slice. Each area begins at a multiple of 64 bytes.
// Immutable; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "exchange/exchange.h"
#include "exchange/row_set.h"
#include "exchange/row_sums.h"
#include "plan/topology.h"

namespace fairring {

// Which rows each rank has: a list for each, ascending; or a bit for each possible row (kernels/key_bits.h).
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

  // What a rank contributes at a level: its own rows at level 0, above that those of all that were summed below. Of
  // level 0 the ranks of this machine, of level 1 those of this site.
  const RowSet& of(int level, int rank) const;
  const RowSet& mine(int level) const { return of(level, rank_); }
  // Of what is contributed there, the most bytes.
  std::uint64_t most(int level) const;

 private:
  static constexpr std::size_t kLevels = Topology::kLevels;

  std::vector<std::uint64_t> all_;
  const std::byte* values_;
  int rank_;
  std::array<std::vector<int>, kLevels> groupOf_;       // by rank: itself, its machine, its site
  std::array<std::map<int, RowSet>, kLevels> rowSets_;  // of such a group
};

// Of its rank's staging, for a slice of any call.
std::uint64_t stagingBytesOf(const Slice& slice);

// Of slices of sparse calls: where contributions lie beside their image, the same on all ranks of the machine, and how
// long that of a rank of the machine is.
std::uint64_t contributionOffset(const Slice& slice);
std::uint64_t contributionBytes(const Slice& slice, int rank);

// A reducing step of such a slice, as its exchange sees it. Ranges are of the slice.
class SparseStep {
 public:
  SparseStep(const Slice& slice, std::size_t step);

  // What a rank contributes in that range.
  std::uint64_t bytesOf(int rank, const Range& range) const { return rowSetOf(rank).within(inCall(range)); }
  // This rank's, from that byte on: what the step before has left.
  std::byte* inputAt(std::uint64_t at) const;
  std::byte* received() const { return slice_.image + received_; }  // where the areas of what others send begin
  std::uint64_t end() const { return end_; }  // of all that this step and those before it need, from the image on
  RowSum sumOf(const Range& range) const;     // without its inputs
  RowInput inputOf(int rank, const std::byte* data, double scale = 1.0) const;

 private:
  const RowSet& rowSetOf(int rank) const { return slice_.rows->of(level_, rank); }
  Range inCall(const Range& range) const { return {slice_.begin + range.begin, slice_.begin + range.end}; }
  std::uint64_t packedBefore(const RowSet& rowSet, const std::vector<Range>& held, std::uint64_t at) const;
  std::uint64_t receivedBytes() const;

  const Slice& slice_;
  const std::size_t step_;
  const int level_;
  // From the image on; a slice is laid out before it has memory.
  std::uint64_t input_ = 0;
  std::vector<Range> inputHeld_;  // what the input covers
  std::uint64_t received_ = 0;
  std::uint64_t sum_ = 0;  // 0: the image
  std::vector<Range> sumHeld_;
  std::uint64_t end_ = 0;
};

}  // namespace fairring
