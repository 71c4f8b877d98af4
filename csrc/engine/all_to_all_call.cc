#include "engine/all_to_all_call.h"

#include <algorithm>
#include <utility>

namespace fairring {

namespace {

constexpr std::uint64_t kUneven = UINT64_MAX;

// An all-gather of a row for each rank, of which every rank sends its own.
CallPart gathered(Slicing& slicing, std::vector<std::uint64_t>& words, std::size_t ranks, std::size_t self) {
  const std::size_t each = words.size() / ranks;
  BlockRows rows(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::uint64_t* const at = words.data() + rank * each;
    rows[rank].push_back({.from = rank == self ? at : nullptr,
                          .to = rank == self ? nullptr : at,
                          .elements = each,
                          .reduction = {.dtype = DType::UInt64}});
  }
  return slicing.ofTensors(Pattern::AllGather, Packing::ofBlocks(rows));
}

}  // namespace

AllToAllCall::AllToAllCall(std::vector<CellPair> cells, int rank)
    : cells_(std::move(cells)), rank_(static_cast<std::size_t>(rank)), even_(cells_.size(), 0) {
  const bool isEven =
      std::ranges::all_of(cells_, [&](const CellPair& pair) { return pair.fromBytes == cells_.front().fromBytes; });
  even_[rank_] = isEven ? cells_.front().fromBytes : kUneven;
}

std::uint64_t AllToAllCall::mostBytes() const {
  std::uint64_t bytes = 0;
  for (const CellPair& pair : cells_) bytes += pair.fromBytes;
  return bytes;
}

CallPart AllToAllCall::first(Slicing& slicing) { return gathered(slicing, even_, cells_.size(), rank_); }

std::optional<CallPart> AllToAllCall::second(Slicing& slicing) {
  if (std::ranges::find(even_, kUneven) == even_.end()) return std::nullopt;
  const std::size_t world = cells_.size();
  sizes_.resize(world * world);
  for (std::size_t to = 0; to < world; ++to) sizes_[rank_ * world + to] = cells_[to].fromBytes;
  return gathered(slicing, sizes_, world, rank_);
}

CallPart AllToAllCall::last(Slicing& slicing, Error& refused) {
  const CellSizes sizes(static_cast<int>(cells_.size()), sizes_.empty() ? even_ : sizes_);
  if (!refused) refused = unfit(sizes);
  return slicing.ofCells(sizes, memory(static_cast<bool>(refused)));
}

Error AllToAllCall::unfit(const CellSizes& sizes) const {
  for (std::size_t peer = 0; peer < cells_.size(); ++peer) {
    const std::uint64_t bytes = sizes.of(static_cast<int>(peer), static_cast<int>(rank_));
    if (bytes == cells_[peer].toBytes) continue;
    return makeError(ErrorKind::Refused, "rank ", peer, " has ", bytes, " B for rank ", rank_, ", which has room for ",
                     cells_[peer].toBytes, " B from it: the input split of the one and the output split of the other ",
                     "must be the same")
        .about({static_cast<int>(peer), static_cast<int>(rank_)});
  }
  return {};
}

CellMemory AllToAllCall::memory(bool isRefused) const {
  CellMemory memory;
  for (const CellPair& pair : cells_) {
    memory.from.push_back(static_cast<const std::byte*>(pair.from));
    memory.to.push_back(isRefused ? nullptr : static_cast<std::byte*>(pair.to));
  }
  return memory;
}

}  // namespace fairring
