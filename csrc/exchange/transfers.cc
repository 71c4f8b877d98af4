#include "exchange/transfers.h"

namespace fairring {

namespace {

Transfer transferOf(const Slice& slice, Verb verb, const Rail& rail, std::size_t owner) {
  const Range mine = rail.shards[static_cast<std::size_t>(rail.self)];
  const Range theirs = rail.shards[owner];
  Transfer transfer{.peer = rail.owners[owner],
                    .rail = rail.range.begin,
                    .send = rail.range,
                    .receiveBytes = slice.bytes(rail.range),
                    .receiveAt = nullptr};
  if (verb == Verb::ReduceScatter) {
    transfer.send = theirs;
    transfer.receiveBytes = slice.bytes(mine);
  } else if (verb == Verb::AllGather) {
    transfer.send = mine;
    transfer.receiveBytes = slice.bytes(theirs);
    transfer.receiveAt = slice.image + slice.byteOffset(theirs.begin);
  }
  return transfer;
}

// From the places of the owners' contributions, those of each group first. A group's sum takes the place of this rank's
// own contribution, where the result belongs anyway, or of the first received one.
void addSums(std::vector<Sum>& sums, const Sum& whole, const std::vector<std::byte*>& places, int self, int groups) {
  Sum last = whole;
  for (int group = 0; group < groups; ++group) {
    const auto [first, end] = boundsOf(group, groups, static_cast<int>(places.size()));
    Sum part = whole;
    part.partial = true;
    if (self < first || self >= end) part.out = places[static_cast<std::size_t>(first)];
    for (int owner = first; owner < end; ++owner) part.inputs.push_back({places[static_cast<std::size_t>(owner)]});
    last.inputs.push_back({part.out});
    sums.push_back(std::move(part));
  }
  if (groups > 1) {
    sums.push_back(std::move(last));
  } else {
    sums.back().partial = false;
  }
}

}  // namespace

std::vector<Transfer> transfersOf(const Slice& slice, std::size_t step) {
  const auto [verb, level, shards] = (*slice.plan)[step];
  std::byte* area = slice.image + (reduces(verb) ? receiveOffset(*slice.plan, *slice.layout, step) : 0);
  std::vector<Transfer> transfers;
  for (const Rail& rail : slice.layout->at(level).rails) {
    for (std::size_t owner = 0; owner < rail.owners.size(); ++owner) {
      if (static_cast<int>(owner) == rail.self) continue;
      Transfer transfer = transferOf(slice, verb, rail, owner);
      if (reduces(verb)) {
        transfer.receiveAt = area;
        area += transfer.receiveBytes;
      }
      transfers.push_back(transfer);
    }
  }
  return transfers;
}

std::vector<Sum> sumsOf(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) {
  const auto [verb, level, shards] = (*slice.plan)[step];
  std::vector<Sum> sums;
  auto transfer = transfers.cbegin();
  const LevelLayout& layout = slice.layout->at(level);
  for (const Rail& rail : layout.rails) {
    const Range range = verb == Verb::AllReduce ? rail.range : rail.shards[static_cast<std::size_t>(rail.self)];
    const Sum whole{.out = slice.image + slice.byteOffset(range.begin), .inputs = {}, .elements = range.size()};
    std::vector<std::byte*> places;
    places.reserve(rail.owners.size());
    for (std::size_t owner = 0; owner < rail.owners.size(); ++owner) {
      places.push_back(static_cast<int>(owner) == rail.self ? whole.out : (transfer++)->receiveAt);
    }
    if (whole.elements > 0) addSums(sums, whole, places, rail.self, layout.groups);
  }
  return sums;
}

std::map<int, std::uint64_t> bytesTo(const Slice& slice, const std::vector<Transfer>& transfers) {
  std::map<int, std::uint64_t> bytes;
  for (const Transfer& transfer : transfers) {
    if (transfer.send.size() > 0) bytes[transfer.peer] += slice.bytes(transfer.send);
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
