// What the machine level does with slices of sparse calls: contributions are packed, behind their ranks' images.
#include "exchange/shared_memory.h"
#include "exchange/sparse_rows.h"

namespace fairring {

// What this rank contributes to a peer's shard, to where the peer reads it.
std::optional<Copy> SharedMemory::copyOfRows(const Slice& slice, const Range& shard) {
  const SparseStep step(slice, 0);
  const int rank = slice.rows->rank();
  const std::uint64_t bytes = step.bytesOf(rank, shard);
  if (bytes == 0) return std::nullopt;
  const std::uint64_t begin = step.bytesOf(rank, {0, shard.begin});
  const std::byte* const from = slice.rows->values() + slice.rows->mine(0).before(slice.begin) + begin;
  return Copy{slice.image + contributionOffset(slice) + begin, from, bytes};
}

// My shard, over what all ranks have of it; mine straight from my rows.
void SharedMemory::sumRows(InFlight& state) {
  const Slice& slice = *state.slice;
  std::vector<RowSum> sums;
  const Rail* rail = railOf(state);
  if (rail != nullptr && rail->shards[static_cast<std::size_t>(rail->self)].size() > 0) {
    const Range shard = rail->shards[static_cast<std::size_t>(rail->self)];
    const SparseStep step(slice, 0);
    RowSum& sum = sums.emplace_back(step.sumOf(shard));
    for (const int owner : rail->owners) {
      const std::uint64_t before = step.bytesOf(owner, {0, shard.begin});
      const bool isSelf = owner == rank_;
      const std::byte* const rows = isSelf ? slice.rows->values() + slice.rows->mine(0).before(slice.begin)
                                           : state.images.at(owner).data + contributionOffset(slice);
      const double scale = isSelf ? slice.scale : state.images.at(owner).scale;
      sum.inputs.push_back(step.inputOf(owner, rows + before, isFloat(sum.reduction.dtype) ? scale : 1.0));
      if (!isSelf) traffic_.add(step.bytesOf(owner, shard));
    }
  }
  const std::uint64_t number = slice.number;
  sumRowsInPieces(loop_, this, urgencyOf(number), std::move(sums), [this, number] { summed(number); });
}

}  // namespace fairring
