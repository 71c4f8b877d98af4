#include "exchange/sparse_body.h"

#include <algorithm>
#include <utility>

#include "exchange/row_sums.h"
#include "exchange/transfers.h"
#include "plan/grain.h"

namespace fairring {

namespace {

std::uint64_t inGrains(std::uint64_t bytes) { return roundUp(bytes, kGrainBytes); }

bool isReducing(const Plan& plan, std::size_t step) { return step < plan.size() && reduces(plan[step].verb); }

// The place of contributions beside their images, the same on all ranks of the machine, and the length of a rank's.
std::uint64_t contributionOffset(const Slice& slice) { return inGrains(slice.layout->bytes); }

std::uint64_t contributionBytes(const Slice& slice, const SparseRows& rows, int rank) {
  return rows.of(0, rank).within(slice.inCall({0, slice.layout->bytes}));
}

// The places and lengths of a reducing step's data in staging. Ranges are of the slice.
class SparseStep {
 public:
  SparseStep(const Slice& slice, const SparseRows& rows, std::size_t step);

  // The bytes that a rank contributes in that range.
  std::uint64_t bytesOf(int rank, const Range& range) const { return rowSetOf(rank).within(slice_.inCall(range)); }
  // This rank's input from that byte on, as the step before has left it.
  std::byte* inputAt(std::uint64_t at) const;
  std::byte* received() const { return slice_.image + received_; }  // where the areas of the others' data begin
  std::uint64_t end() const { return end_; }  // of all memory of this step and those before it, from the image on
  RowSum sumOf(const Range& range) const;     // without its inputs
  RowInput inputOf(int rank, const std::byte* data, double scale = 1.0) const;

 private:
  const RowSet& rowSetOf(int rank) const { return rows_.of(level_, rank); }
  std::uint64_t packedBefore(const RowSet& rowSet, const std::vector<Range>& held, std::uint64_t at) const;
  std::uint64_t receivedBytes() const;

  const Slice& slice_;
  const SparseRows& rows_;
  const std::size_t step_;
  const int level_;
  // Counted from the image on; a slice is laid out before it has memory.
  std::uint64_t input_ = 0;
  std::vector<Range> inputHeld_;  // the ranges that the input covers
  std::uint64_t received_ = 0;
  std::uint64_t sum_ = 0;  // 0: the image
  std::vector<Range> sumHeld_;
  std::uint64_t end_ = 0;
};

SparseStep::SparseStep(const Slice& slice, const SparseRows& rows, std::size_t step)
    : slice_(slice), rows_(rows), step_(step), level_((*slice.plan)[step].level) {
  if (step == 0) {
    input_ = contributionOffset(slice);
    inputHeld_ = {{0, slice.layout->bytes}};
    received_ = input_ + inGrains(contributionBytes(slice, rows, rows.rank()));
  } else {
    const SparseStep before(slice, rows, step - 1);
    input_ = before.sum_;
    inputHeld_ = before.sumHeld_;
    received_ = before.end_;
  }
  end_ = received_ + inGrains(level_ == 0 ? 0 : receivedBytes());
  sumHeld_ = reducedRanges((*slice.plan)[step], *slice.layout);
  if (!isReducing(*slice.plan, step + 1)) return;
  sum_ = end_;
  const RowSet& summed = rows.mine((*slice.plan)[step + 1].level);
  end_ += inGrains(packedBefore(summed, sumHeld_, slice.layout->bytes));
}

std::uint64_t SparseStep::receivedBytes() const {
  std::uint64_t bytes = 0;
  for (const Rail& rail : slice_.layout->at(level_).rails) {
    const Range range = reducedRange((*slice_.plan)[step_], rail);
    for (const int owner : rail.owners) {
      if (owner != rows_.rank()) bytes += bytesOf(owner, range);
    }
  }
  return bytes;
}

std::uint64_t SparseStep::packedBefore(const RowSet& rowSet, const std::vector<Range>& held, std::uint64_t at) const {
  std::uint64_t bytes = 0;
  for (const Range& range : held) {
    if (range.begin < at) bytes += rowSet.within(slice_.inCall({range.begin, std::min(range.end, at)}));
  }
  return bytes;
}

std::byte* SparseStep::inputAt(std::uint64_t at) const {
  return slice_.image + input_ + packedBefore(rows_.mine(level_), inputHeld_, at);
}

RowSum SparseStep::sumOf(const Range& range) const {
  RowSum sum{.reduction = slice_.reductionOf(slice_.portions.front(), step_), .range = slice_.inCall(range)};
  if (sum_ == 0) {
    sum.out = slice_.image + range.begin;
    return sum;
  }
  sum.packed = true;
  sum.out = slice_.image + sum_ + packedBefore(rows_.mine((*slice_.plan)[step_ + 1].level), sumHeld_, range.begin);
  return sum;
}

RowInput SparseStep::inputOf(int rank, const std::byte* data, double scale) const {
  return {&rowSetOf(rank), data, scale};
}

// This rank's rows of the slice.
const std::byte* valuesOf(const Slice& slice, const SparseRows& rows) {
  return rows.values() + rows.mine(0).before(slice.begin);
}

}  // namespace

std::uint64_t SparseBody::stagingBytes(const Slice& slice) const {
  std::size_t last = 0;
  while (isReducing(*slice.plan, last + 1)) ++last;
  return SparseStep(slice, *rows_, last).end();
}

std::uint64_t SparseBody::imageBytes(const Slice& slice, int rank) const {
  return contributionOffset(slice) + contributionBytes(slice, *rows_, rank);
}

// Copies this rank's contributions to its peers' shards to where the peers read them.
Job SparseBody::fill(const Slice& slice, std::size_t step) const {
  std::vector<Copy> copies;
  const Rail* const rail = machineRail(slice);
  if (rail == nullptr) return {};
  const SparseStep sparse(slice, *rows_, step);
  for (std::size_t owner = 0; owner < rail->shards.size(); ++owner) {
    const Range shard = rail->shards[owner];
    const std::uint64_t bytes = sparse.bytesOf(rows_->rank(), shard);
    if (static_cast<int>(owner) == rail->self || bytes == 0) continue;
    const std::uint64_t begin = sparse.bytesOf(rows_->rank(), {0, shard.begin});
    copies.push_back({slice.image + contributionOffset(slice) + begin, valuesOf(slice, *rows_) + begin, bytes});
  }
  return jobOf(std::move(copies), slice.streams);
}

// Sums my shard over all ranks' contributions. My own rows are read in place.
Job SparseBody::combine(const Slice& slice, std::size_t step, const PeerImages& images) const {
  const Range shard = machineShard(slice);
  if (shard.size() == 0) return {};
  const SparseStep sparse(slice, *rows_, step);
  RowSum sum = sparse.sumOf(shard);
  for (const int owner : machineRail(slice)->owners) {
    const std::uint64_t before = sparse.bytesOf(owner, {0, shard.begin});
    const bool isSelf = owner == rows_->rank();
    const std::byte* const rows = isSelf ? valuesOf(slice, *rows_) : images.at(owner).data + contributionOffset(slice);
    const double scale = isSelf ? slice.scale : images.at(owner).scale;
    sum.inputs.push_back(sparse.inputOf(owner, rows + before, isFloat(sum.reduction.dtype) ? scale : 1.0));
  }
  return jobOf(std::vector{std::move(sum)});
}

std::uint64_t SparseBody::bytesCombined(const Slice& slice, std::size_t step, int peer) const {
  return SparseStep(slice, *rows_, step).bytesOf(peer, machineShard(slice));
}

std::vector<Transfer> SparseBody::transfers(const Slice& slice, std::size_t step) const {
  std::vector<Transfer> transfers = DenseBody::transfers(slice, step);
  const Step& what = (*slice.plan)[step];
  if (!reduces(what.verb)) return transfers;
  const SparseStep sparse(slice, *rows_, step);
  std::byte* area = sparse.received();
  auto transfer = transfers.begin();
  for (const Rail& rail : slice.layout->at(what.level).rails) {
    for (std::size_t owner = 0; owner < rail.owners.size(); ++owner) {
      if (static_cast<int>(owner) == rail.self) continue;
      const auto [sent, received] = rangesOf(what, rail, -1, static_cast<int>(owner));
      transfer->sendFrom = sparse.inputAt(sent.begin);
      transfer->sendBytes = sparse.bytesOf(rows_->rank(), sent);
      transfer->receiveBytes = sparse.bytesOf(transfer->peer, received);
      transfer->receiveAt = area;
      area += (transfer++)->receiveBytes;
    }
  }
  return transfers;
}

Job SparseBody::afterReceiving(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const {
  const Step& what = (*slice.plan)[step];
  if (!reduces(what.verb)) return {};
  const SparseStep sparse(slice, *rows_, step);
  std::vector<RowSum> sums;
  auto transfer = transfers.cbegin();
  const LevelLayout& layout = slice.layout->at(what.level);
  for (const Rail& rail : layout.rails) {
    const Range range = reducedRange(what, rail);
    RowSum sum = sparse.sumOf(range);
    sum.groups = layout.groups;
    for (std::size_t owner = 0; owner < rail.owners.size(); ++owner) {
      const bool isSelf = static_cast<int>(owner) == rail.self;
      sum.inputs.push_back(
          sparse.inputOf(rail.owners[owner], isSelf ? sparse.inputAt(range.begin) : (transfer++)->receiveAt));
    }
    if (range.size() > 0) sums.push_back(std::move(sum));
  }
  return jobOf(std::move(sums));
}

}  // namespace fairring
