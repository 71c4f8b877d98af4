#include "exchange/compressed_body.h"

#include <algorithm>
#include <span>
#include <utility>

#include "exchange/transfers.h"
#include "kernels/bf16.h"
#include "kernels/reduce.h"
#include "plan/topology.h"

namespace fairring {

namespace {

constexpr std::uint64_t kPieceElements = 64 << 10;
constexpr std::size_t kSampledElements = 4096;   // of each piece, for the mean error
constexpr std::uint64_t kSummedElements = 1024;  // decoded at a time, so that they stay in the first cache

float* floatsAt(std::byte* bytes) { return reinterpret_cast<float*>(bytes); }
std::uint64_t floatsIn(const Range& range) { return range.size() / sizeof(float); }  // its elements are bytes

// Goes in ascending order, as arrays that share memory require.
template <class Work>
void addPieces(Pieces& pieces, std::uint64_t elements, const Work& work) {
  for (std::uint64_t begin = 0; begin < elements; begin += kPieceElements) {
    const std::uint64_t count = std::min(kPieceElements, elements - begin);
    pieces.emplace_back([work, begin, count] { work(begin, count); });
  }
}

// own[i] = before[0][i] + ... + own[i] + after[0][i] + ..., in fp32 and in this order.
void addAround(const SiteFormat& format, float* own, std::span<const std::byte* const> before,
               std::span<const std::byte* const> after, std::uint64_t elements) {
  std::vector<float> decoded((before.size() + after.size()) * kSummedElements);
  for (std::uint64_t begin = 0; begin < elements; begin += kSummedElements) {
    const std::uint64_t count = std::min(kSummedElements, elements - begin);
    std::vector<Input> inputs;
    float* next = decoded.data();
    const auto decode = [&](std::span<const std::byte* const> contributions) {
      for (const std::byte* const one : contributions) {
        format.decode(one + format.bytes(begin), next, count);
        inputs.push_back({std::exchange(next, next + kSummedElements)});
      }
    };
    decode(before);
    inputs.push_back({own + begin});
    decode(after);
    reduce({.dtype = DType::Float32}, own + begin, inputs, count);
  }
}

// Encodes a contribution, with the residual of the last time.
void encodeFresh(const SiteFormat& format, float* values, std::byte* encoded, float* lost, std::size_t count,
                 Rounding& counted) {
  const std::size_t sample = std::min(count, kSampledElements);
  addLost(values, lost, count);
  counted.magnitude += magnitudeOf(values, sample);
  format.encode(values, encoded, lost, count);
  counted.lost += magnitudeOf(lost, sample);
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

}  // namespace

float* CompressedBody::lostOf(const Slice& slice, const Range& range) const {
  return residual_ + floatsIn({0, slice.begin + range.begin});
}

std::vector<Transfer> CompressedBody::transfers(const Slice& slice, std::size_t step) const {
  std::vector<Transfer> transfers = DenseBody::transfers(slice, step);
  if (isBetweenSites(slice, step)) shrink(slice, step, transfers);
  return transfers;
}

// Makes the encoded transfers from those that Float32 would have.
void CompressedBody::shrink(const Slice& slice, std::size_t step, std::vector<Transfer>& transfers) const {
  const auto [verb, level, shards] = (*slice.plan)[step];
  const std::vector<std::byte*> spares = sparesOf(slice, step);
  auto transfer = transfers.begin();
  for (std::size_t rail = 0; rail < spares.size(); ++rail) {
    const std::size_t peers = slice.layout->at(level).rails[rail].owners.size() - 1;
    for (std::size_t peer = 0; peer < peers; ++peer, ++transfer) {
      if (verb != Verb::ReduceScatter) transfer->sendFrom = spares[rail];
      transfer->sendBytes = format_.bytes(transfer->sendBytes / sizeof(float));
      const std::uint64_t place = transfer->receiveBytes;
      transfer->receiveBytes = format_.bytes(place / sizeof(float));
      if (verb == Verb::AllGather) transfer->receiveAt += place - transfer->receiveBytes;
    }
  }
}

Job CompressedBody::beforeSending(const Slice& slice, std::size_t step) const {
  return isBetweenSites(slice, step) ? jobOf(encoding(slice, step)) : Job();
}

Job CompressedBody::afterReceiving(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const {
  if (!isBetweenSites(slice, step)) return DenseBody::afterReceiving(slice, step, transfers);
  return jobOf(result(slice, step, transfers));
}

// Decoded in place, and encoded in the scratch area. fresh: a contribution, to which the last residual is added.
void CompressedBody::addKept(Pieces& pieces, const Slice& slice, const Range& range, std::byte* spare, float* lost,
                             bool fresh) const {
  float* const values = floatsAt(slice.at(range));
  addPieces(pieces, floatsIn(range),
            [=, &format = format_, counted = counted_](std::uint64_t begin, std::uint64_t count) {
              std::byte* const encoded = spare + format.bytes(begin);
              if (fresh) {
                encodeFresh(format, values + begin, encoded, lost + begin, count, *counted);
              } else {
                format.encode(values + begin, encoded, lost == nullptr ? nullptr : lost + begin, count);
              }
              format.decode(encoded, values + begin, count);
            });
}

void CompressedBody::addSent(Pieces& pieces, const Slice& slice, const Range& range) const {
  std::byte* const place = slice.at(range);
  float* const lost = lostOf(slice, range);
  addPieces(pieces, floatsIn(range),
            [=, &format = format_, counted = counted_](std::uint64_t begin, std::uint64_t count) {
              encodeFresh(format, floatsAt(place) + begin, place + format.bytes(begin), lost + begin, count, *counted);
            });
}

void CompressedBody::addSum(Pieces& pieces, const Slice& slice, const Range& range,
                            const std::vector<const std::byte*>& before,
                            const std::vector<const std::byte*>& after) const {
  float* const own = floatsAt(slice.at(range));
  addPieces(pieces, floatsIn(range), [=, &format = format_](std::uint64_t begin, std::uint64_t count) {
    const auto from = [offset = format.bytes(begin)](std::vector<const std::byte*> contributions) {
      for (const std::byte*& one : contributions) one += offset;
      return contributions;
    };
    addAround(format, own + begin, from(before), from(after), count);
  });
}

// A result's rounding error counts once, at the owner of the shard, under any plan.
void CompressedBody::addResult(Pieces& pieces, const Slice& slice, const Rail& rail, const Range& range,
                               std::byte* spare) const {
  const Range shard = rail.own();
  for (const Range& part : {Range{range.begin, shard.begin}, shard, Range{shard.end, range.end}}) {
    if (part.begin >= part.end) continue;
    float* const lost = part == shard ? lostOf(slice, part) : nullptr;
    addKept(pieces, slice, part, spare + format_.bytes(floatsIn({range.begin, part.begin})), lost, false);
  }
}

Pieces CompressedBody::encoding(const Slice& slice, std::size_t step) const {
  const Step& what = (*slice.plan)[step];
  Pieces pieces;
  if (what.verb == Verb::AllGather) return pieces;  // encoded when it was summed
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

// Results come in the last bytes of their places.
Pieces CompressedBody::decoding(const Slice& slice, std::size_t step) const {
  Pieces pieces;
  for (const Transfer& decoded : DenseBody::transfers(slice, step)) {
    std::byte* const place = decoded.receiveAt;
    const std::uint64_t elements = decoded.receiveBytes / sizeof(float);
    const std::byte* const encoded = place + decoded.receiveBytes - format_.bytes(elements);
    addPieces(pieces, elements, [=, &format = format_](std::uint64_t begin, std::uint64_t count) {
      format.decode(encoded + format.bytes(begin), floatsAt(place) + begin, count);
    });
  }
  return pieces;
}

Pieces CompressedBody::result(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const {
  const Step& what = (*slice.plan)[step];
  if (what.verb == Verb::AllGather) return decoding(slice, step);
  Pieces pieces;
  const std::vector<std::byte*> spares = sparesOf(slice, step);
  auto spare = spares.begin();
  auto transfer = transfers.begin();
  for (const Rail& rail : slice.layout->at(what.level).rails) {
    std::vector<const std::byte*> before;
    std::vector<const std::byte*> after;
    for (std::size_t owner = 0; owner < rail.owners.size(); ++owner) {
      if (static_cast<int>(owner) == rail.self) continue;
      (static_cast<int>(owner) < rail.self ? before : after).push_back((transfer++)->receiveAt);
    }
    const Range range = reducedRange(what, rail);
    addSum(pieces, slice, range, before, after);
    addResult(pieces, slice, rail, range, *spare++);
  }
  return pieces;
}

}  // namespace fairring
