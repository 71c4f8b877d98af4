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
  for (const Rail& rail : slice.layout->at(level).rails) {
    const Range range = verb == Verb::AllReduce ? rail.range : rail.shards[static_cast<std::size_t>(rail.self)];
    Sum sum{.out = slice.image + slice.byteOffset(range.begin), .inputs = {}, .elements = range.size()};
    for (std::size_t owner = 0; owner < rail.owners.size(); ++owner) {
      sum.inputs.push_back({static_cast<int>(owner) == rail.self ? sum.out : (transfer++)->receiveAt});
    }
    if (sum.elements > 0) sums.push_back(std::move(sum));
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
