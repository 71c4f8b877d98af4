#include "exchange/transfers.h"

#include <optional>
#include <utility>

#include "exchange/site_compression.h"
#include "exchange/sparse_rows.h"

namespace fairring {

namespace {

// What this rank sends to an owner of the rail, and what it gets of him.
std::pair<Range, Range> rangesOf(Verb verb, const Rail& rail, std::size_t owner) {
  const Range mine = rail.shards[static_cast<std::size_t>(rail.self)];
  const Range theirs = rail.shards[owner];
  if (verb == Verb::ReduceScatter) return {theirs, mine};
  if (verb == Verb::AllGather) return {mine, theirs};
  return {rail.range, rail.range};
}

Transfer transferOf(const Slice& slice, Verb verb, const Rail& rail, std::size_t owner, const SparseStep* sparse) {
  const auto [send, receive] = rangesOf(verb, rail, owner);
  Transfer transfer{.peer = rail.owners[owner],
                    .rail = rail.range.begin,
                    .sendFrom = slice.at(send),
                    .sendBytes = slice.bytes(send),
                    .receiveBytes = slice.bytes(receive),
                    .receiveAt = slice.at(receive)};
  if (sparse != nullptr) {
    transfer.sendFrom = sparse->inputAt(send.begin);
    transfer.sendBytes = sparse->bytesOf(slice.rows->rank(), send);
    transfer.receiveBytes = sparse->bytesOf(transfer.peer, receive);
  }
  return transfer;
}

// From the places of the owners' contributions, those of each group first. A group's sum takes the place of this rank's
// own contribution, where the result belongs anyway, or of the first received one.
void addSums(Sums& sums, const Sum& whole, const std::vector<std::byte*>& places, int self, int groups) {
  const auto boundsOfGroup = [&](int group) { return boundsOf(group, groups, static_cast<int>(places.size())); };
  const auto placeOfGroup = [&](int group) {
    const auto [first, end] = boundsOfGroup(group);
    return self >= first && self < end ? whole.out : places[static_cast<std::size_t>(first)];
  };
  Reduction undivided = whole.reduction;
  undivided.divisor = 1;
  for (int group = 0; group < groups; ++group) {
    sums.open(groups > 1 ? undivided : whole.reduction, placeOfGroup(group), whole.elements);
    const auto [first, end] = boundsOfGroup(group);
    for (int owner = first; owner < end; ++owner) sums.add({places[static_cast<std::size_t>(owner)]});
  }
  if (groups == 1) return;
  sums.open(whole.reduction, whole.out, whole.elements);
  for (int group = 0; group < groups; ++group) sums.add({placeOfGroup(group)});
}

}  // namespace

std::vector<Transfer> transfersOf(const Slice& slice, std::size_t step) {
  const auto [verb, level, shards] = (*slice.plan)[step];
  const auto sparse =
      slice.rows && reduces(verb) ? std::optional<SparseStep>(std::in_place, slice, step) : std::nullopt;
  std::byte* area =
      sparse ? sparse->received() : slice.image + (reduces(verb) ? receiveOffset(*slice.plan, *slice.layout, step) : 0);
  std::vector<Transfer> transfers;
  for (const Rail& rail : slice.layout->at(level).rails) {
    for (std::size_t owner = 0; owner < rail.owners.size(); ++owner) {
      if (static_cast<int>(owner) == rail.self) continue;
      Transfer transfer = transferOf(slice, verb, rail, owner, sparse ? &*sparse : nullptr);
      if (reduces(verb)) {
        transfer.receiveAt = area;
        area += transfer.receiveBytes;
      }
      transfers.push_back(transfer);
    }
  }
  if (isCompressed(slice, step)) halveTransfers(slice, step, transfers);
  return transfers;
}

Sums sumsOf(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) {
  const auto [verb, level, shards] = (*slice.plan)[step];
  Sums sums;
  auto transfer = transfers.cbegin();
  const LevelLayout& layout = slice.layout->at(level);
  for (const Rail& rail : layout.rails) {
    const Range range = verb == Verb::AllReduce ? rail.range : rail.shards[static_cast<std::size_t>(rail.self)];
    std::vector<std::byte*> places;  // of the range's first byte
    places.reserve(rail.owners.size());
    for (std::size_t owner = 0; owner < rail.owners.size(); ++owner) {
      places.push_back(static_cast<int>(owner) == rail.self ? slice.image + range.begin : (transfer++)->receiveAt);
    }
    std::uint64_t at = range.begin;
    for (const Portion& portion : joinedWithin(slice.portions, range)) {
      for (std::byte*& place : places) place += portion.begin - at;
      at = portion.begin;
      const Sum whole{.reduction = slice.reductionOf(portion, step),
                      .out = slice.image + portion.begin,
                      .elements = portion.elements};
      addSums(sums, whole, places, rail.self, layout.groups);
    }
  }
  return sums;
}

std::vector<RowSum> rowSumsOf(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) {
  const auto [verb, level, shards] = (*slice.plan)[step];
  const SparseStep sparse(slice, step);
  std::vector<RowSum> sums;
  auto transfer = transfers.cbegin();
  const LevelLayout& layout = slice.layout->at(level);
  for (const Rail& rail : layout.rails) {
    const Range range = verb == Verb::AllReduce ? rail.range : rail.shards[static_cast<std::size_t>(rail.self)];
    RowSum sum = sparse.sumOf(range);
    sum.groups = layout.groups;
    for (std::size_t owner = 0; owner < rail.owners.size(); ++owner) {
      const bool isSelf = static_cast<int>(owner) == rail.self;
      sum.inputs.push_back(
          sparse.inputOf(rail.owners[owner], isSelf ? sparse.inputAt(range.begin) : (transfer++)->receiveAt));
    }
    if (range.size() > 0) sums.push_back(std::move(sum));
  }
  return sums;
}

std::map<int, std::uint64_t> bytesTo(const std::vector<Transfer>& transfers) {
  std::map<int, std::uint64_t> bytes;
  for (const Transfer& transfer : transfers) {
    if (transfer.sendBytes > 0) bytes[transfer.peer] += transfer.sendBytes;
  }
  return bytes;
}

std::map<int, std::uint64_t> bytesFrom(const std::vector<Transfer>& transfers) {
  std::map<int, std::uint64_t> bytes;
  for (const Transfer& transfer : transfers) {
    if (transfer.receiveBytes > 0) bytes[transfer.peer] += transfer.receiveBytes;
  }
  return bytes;
}

}  // namespace fairring
