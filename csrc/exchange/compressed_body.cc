#include "exchange/compressed_body.h"

#include <algorithm>

#include "exchange/transfers.h"
#include "kernels/bf16.h"
#include "plan/topology.h"

namespace fairring {

namespace {

constexpr std::uint64_t kPieceElements = 64 << 10;

float* floatsAt(std::byte* bytes) { return reinterpret_cast<float*>(bytes); }
Bf16* bf16At(std::byte* bytes) { return reinterpret_cast<Bf16*>(bytes); }
std::uint64_t floatsIn(const Range& range) { return range.size() / sizeof(float); }  // its elements are bytes

// Goes in ascending order, as arrays that share memory require.
template <class Work>
void addPieces(Pieces& pieces, std::uint64_t elements, const Work& work) {
  for (std::uint64_t begin = 0; begin < elements; begin += kPieceElements) {
    const std::uint64_t count = std::min(kPieceElements, elements - begin);
    pieces.emplace_back([work, begin, count] { work(begin, count); });
  }
}

bool isBetweenSites(const Slice& slice, std::size_t step) { return (*slice.plan)[step].level == Topology::kSiteLevel; }

// The step whose areas hold the peers' contributions.
std::size_t reducingStep(const Slice& slice, std::size_t step) {
  const Plan& plan = *slice.plan;
  const auto found = std::ranges::find_if(
      plan, [&](const Step& other) { return other.level == plan[step].level && reduces(other.verb); });
  return static_cast<std::size_t>(found - plan.begin());
}

// The spare area of each rail of the level.
std::vector<std::byte*> sparesOf(const Slice& slice, std::size_t step) {
  const std::size_t reducing = reducingStep(slice, step);
  const Step& what = (*slice.plan)[reducing];
  std::byte* area = slice.areasOf(reducing);
  std::vector<std::byte*> spares;
  for (const Rail& rail : slice.layout->at(what.level).rails) {
    const std::uint64_t bytes = reducedRange(what, rail).size();
    spares.push_back(area + bytes / 2);
    area += bytes * (rail.owners.size() - 1);
  }
  return spares;
}

// Rounded in place, and as bf16 in the scratch area. fresh: a contribution, to which the last residual is added.
void addKept(Pieces& pieces, const Slice& slice, const Range& range, std::byte* spare, float* lost, bool fresh) {
  float* const values = floatsAt(slice.at(range));
  Bf16* const rounded = bf16At(spare);
  addPieces(pieces, floatsIn(range), [=](std::uint64_t begin, std::uint64_t count) {
    if (fresh) addLost(values + begin, lost + begin, count);
    roundToBf16(values + begin, rounded + begin, lost == nullptr ? nullptr : lost + begin, count);
    widen(rounded + begin, values + begin, count);
  });
}

void addSum(Pieces& pieces, const Slice& slice, const Range& range, const std::vector<const Bf16*>& before,
            const std::vector<const Bf16*>& after) {
  float* const own = floatsAt(slice.at(range));
  addPieces(pieces, floatsIn(range), [=](std::uint64_t begin, std::uint64_t count) {
    const auto from = [begin](std::vector<const Bf16*> contributions) {
      for (const Bf16*& one : contributions) one += begin;
      return contributions;
    };
    addAround(own + begin, from(before), from(after), count);
  });
}

Pieces widening(const std::vector<Transfer>& transfers) {
  Pieces pieces;
  for (const Transfer& transfer : transfers) {
    const std::uint64_t bytes = transfer.receiveBytes;
    float* const wide = floatsAt(transfer.receiveAt - bytes);
    const Bf16* const narrow = bf16At(transfer.receiveAt);
    addPieces(pieces, bytes / sizeof(Bf16),
              [=](std::uint64_t begin, std::uint64_t count) { widen(narrow + begin, wide + begin, count); });
  }
  return pieces;
}

// Makes the bf16 transfers from those that Float32 would have.
void halve(const Slice& slice, std::size_t step, std::vector<Transfer>& transfers) {
  const auto [verb, level, shards] = (*slice.plan)[step];
  const std::vector<std::byte*> spares = sparesOf(slice, step);
  auto transfer = transfers.begin();
  for (std::size_t rail = 0; rail < spares.size(); ++rail) {
    const std::size_t peers = slice.layout->at(level).rails[rail].owners.size() - 1;
    for (std::size_t peer = 0; peer < peers; ++peer, ++transfer) {
      if (verb != Verb::ReduceScatter) transfer->sendFrom = spares[rail];
      if (verb == Verb::AllGather) transfer->receiveAt += transfer->receiveBytes / 2;
      transfer->sendBytes /= 2;
      transfer->receiveBytes /= 2;
    }
  }
}

}  // namespace

float* CompressedBody::lostOf(const Slice& slice, const Range& range) const {
  return residual_ + floatsIn({0, slice.begin + range.begin});
}

std::vector<Transfer> CompressedBody::transfers(const Slice& slice, std::size_t step) const {
  std::vector<Transfer> transfers = DenseBody::transfers(slice, step);
  if (isBetweenSites(slice, step)) halve(slice, step, transfers);
  return transfers;
}

Job CompressedBody::beforeSending(const Slice& slice, std::size_t step) const {
  return isBetweenSites(slice, step) ? jobOf(rounding(slice, step)) : Job();
}

Job CompressedBody::afterReceiving(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const {
  if (!isBetweenSites(slice, step)) return DenseBody::afterReceiving(slice, step, transfers);
  return jobOf(result(slice, step, transfers));
}

void CompressedBody::addSent(Pieces& pieces, const Slice& slice, const Range& range) const {
  float* const values = floatsAt(slice.at(range));
  Bf16* const rounded = bf16At(slice.at(range));
  float* const lost = lostOf(slice, range);
  addPieces(pieces, floatsIn(range), [=](std::uint64_t begin, std::uint64_t count) {
    addLost(values + begin, lost + begin, count);
    roundToBf16(values + begin, rounded + begin, lost + begin, count);
  });
}

// A result's rounding error counts once, at the owner of the shard, under any plan.
void CompressedBody::addResult(Pieces& pieces, const Slice& slice, const Rail& rail, const Range& range,
                               std::byte* spare) const {
  const Range shard = rail.own();
  for (const Range& part : {Range{range.begin, shard.begin}, shard, Range{shard.end, range.end}}) {
    if (part.begin >= part.end) continue;
    float* const lost = part == shard ? lostOf(slice, part) : nullptr;
    addKept(pieces, slice, part, spare + (part.begin - range.begin) / 2, lost, false);
  }
}

Pieces CompressedBody::rounding(const Slice& slice, std::size_t step) const {
  const Step& what = (*slice.plan)[step];
  Pieces pieces;
  if (what.verb == Verb::AllGather) return pieces;  // rounded when it was summed
  const std::vector<std::byte*> spares = sparesOf(slice, step);
  auto spare = spares.begin();
  for (const Rail& rail : slice.layout->at(what.level).rails) {
    const Range range = reducedRange(what, rail);
    addKept(pieces, slice, range, *spare++, lostOf(slice, range), true);
    for (const Range& shard : rail.shards) {
      if (what.verb == Verb::ReduceScatter && !(shard == range)) addSent(pieces, slice, shard);
    }
  }
  return pieces;
}

Pieces CompressedBody::result(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const {
  const Step& what = (*slice.plan)[step];
  if (what.verb == Verb::AllGather) return widening(transfers);
  Pieces pieces;
  const std::vector<std::byte*> spares = sparesOf(slice, step);
  auto spare = spares.begin();
  auto transfer = transfers.begin();
  for (const Rail& rail : slice.layout->at(what.level).rails) {
    std::vector<const Bf16*> before;
    std::vector<const Bf16*> after;
    for (std::size_t owner = 0; owner < rail.owners.size(); ++owner) {
      if (static_cast<int>(owner) == rail.self) continue;
      (static_cast<int>(owner) < rail.self ? before : after).push_back(bf16At((transfer++)->receiveAt));
    }
    const Range range = reducedRange(what, rail);
    addSum(pieces, slice, range, before, after);
    addResult(pieces, slice, rail, range, *spare++);
  }
  return pieces;
}

}  // namespace fairring
