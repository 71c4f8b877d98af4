#include "exchange/sparse_rows.h"

#include <algorithm>
#include <utility>

#include "exchange/key_bits.h"

namespace fairring {

namespace {

constexpr std::uint64_t kGrainBytes = 64;

std::uint64_t roundUp(std::uint64_t bytes) { return (bytes + kGrainBytes - 1) / kGrainBytes * kGrainBytes; }

using Keys = std::vector<std::uint64_t>;

// A bit for each key, where there are not many times more than keys are listed.
Keys mergedByBits(const std::vector<const Keys*>& lists, std::uint64_t keysBelow) {
  std::vector<std::uint64_t> bits(keysBelow / 64 + 1);
  for (const Keys* list : lists) setKeys(bits, *list);
  return keysIn(bits);
}

Keys mergedInPairs(const std::vector<const Keys*>& lists) {
  std::vector<Keys> merged;
  merged.reserve(lists.size());
  for (const Keys* list : lists) merged.push_back(*list);
  while (merged.size() > 1) {
    std::vector<Keys> next;
    for (std::size_t i = 0; i + 1 < merged.size(); i += 2) {
      Keys& both = next.emplace_back();
      both.reserve(merged[i].size() + merged[i + 1].size());
      std::ranges::set_union(merged[i], merged[i + 1], std::back_inserter(both));
    }
    if (merged.size() % 2 == 1) next.push_back(std::move(merged.back()));
    merged = std::move(next);
  }
  return merged.empty() ? Keys{} : std::move(merged.front());
}

// Of sorted lists, each key once.
Keys mergedOf(const std::vector<const Keys*>& lists) {
  if (lists.size() == 1) return *lists.front();
  std::uint64_t keysBelow = 0;
  std::uint64_t listed = 0;
  for (const Keys* list : lists) {
    if (list->empty()) continue;
    keysBelow = std::max(keysBelow, list->back() + 1);
    listed += list->size();
  }
  return keysBelow / 64 <= listed ? mergedByBits(lists, keysBelow) : mergedInPairs(lists);
}

bool isReducing(const Plan& plan, std::size_t step) { return step < plan.size() && reduces(plan[step].verb); }

// What this rank holds once the step has reduced.
std::vector<Range> heldAfter(const Slice& slice, std::size_t step) {
  const auto [verb, level, shards] = (*slice.plan)[step];
  std::vector<Range> held;
  for (const Rail& rail : slice.layout->at(level).rails)
    held.push_back(verb == Verb::AllReduce ? rail.range : rail.shards[static_cast<std::size_t>(rail.self)]);
  return held;
}

}  // namespace

SparseRows::SparseRows(const Topology& topology, int rank, const std::vector<std::vector<std::uint64_t>>& keys,
                       std::uint64_t rowBytes, const std::byte* values)
    : values_(values), rank_(rank) {
  std::vector<Keys> ofMachines;
  for (int machine = 0; machine < topology.machines(); ++machine) {
    std::vector<const Keys*> lists;
    for (const int local : topology.ranksOf(machine)) lists.push_back(&keys[static_cast<std::size_t>(local)]);
    ofMachines.push_back(mergedOf(lists));
  }
  std::vector<Keys> ofSites;
  for (int site = 0; site < topology.sites(); ++site) {
    std::vector<const Keys*> lists;
    for (const int machine : topology.machinesOf(site)) lists.push_back(&ofMachines[static_cast<std::size_t>(machine)]);
    ofSites.push_back(mergedOf(lists));
  }
  std::vector<const Keys*> lists;
  lists.reserve(ofSites.size());
  for (const Keys& site : ofSites) lists.push_back(&site);
  all_ = mergedOf(lists);

  const auto presenceOf = [&](const Keys& some) { return Presence(some, all_, rowBytes); };
  const int machine = topology.machineOf(rank);
  const int site = topology.siteOf(machine);
  for (int other = 0; other < topology.world(); ++other) {
    const int itsMachine = topology.machineOf(other);
    groupOf_[0].push_back(other);
    groupOf_[1].push_back(itsMachine);
    groupOf_[2].push_back(topology.siteOf(itsMachine));
    if (itsMachine == machine) presences_[0].emplace(other, presenceOf(keys[static_cast<std::size_t>(other)]));
  }
  for (const int other : topology.machinesOf(site))
    presences_[1].emplace(other, presenceOf(ofMachines[static_cast<std::size_t>(other)]));
  for (int other = 0; other < topology.sites(); ++other)
    presences_[2].emplace(other, presenceOf(ofSites[static_cast<std::size_t>(other)]));
}

const Presence& SparseRows::of(int level, int rank) const {
  const auto at = static_cast<std::size_t>(level);
  return presences_[at].at(groupOf_[at][static_cast<std::size_t>(rank)]);
}

std::uint64_t SparseRows::most(int level) const {
  std::uint64_t bytes = 0;
  for (const auto& [group, presence] : presences_[static_cast<std::size_t>(level)])
    bytes = std::max(bytes, presence.before(UINT64_MAX));
  return bytes;
}

std::uint64_t stagingBytesOf(const Slice& slice) {
  if (slice.rows == nullptr) return stagingBytes(*slice.plan, *slice.layout);
  std::size_t last = 0;
  while (isReducing(*slice.plan, last + 1)) ++last;
  return SparseStep(slice, last).end();
}

std::uint64_t contributionOffset(const Slice& slice) { return roundUp(slice.byteOffset(slice.layout->elements)); }

std::uint64_t contributionBytes(const Slice& slice, int rank) {
  return slice.rows->of(0, rank).within({slice.begin, slice.begin + slice.byteOffset(slice.layout->elements)});
}

SparseStep::SparseStep(const Slice& slice, std::size_t step)
    : slice_(slice), step_(step), level_((*slice.plan)[step].level) {
  if (step == 0) {
    input_ = contributionOffset(slice);
    inputHeld_ = {{0, slice.layout->elements}};
    received_ = input_ + roundUp(contributionBytes(slice, slice.rows->rank()));
  } else {
    const SparseStep before(slice, step - 1);
    input_ = before.sum_;
    inputHeld_ = before.sumHeld_;
    received_ = before.end_;
  }
  end_ = received_ + roundUp(level_ == 0 ? 0 : receivedBytes());
  sumHeld_ = heldAfter(slice, step);
  if (!isReducing(*slice.plan, step + 1)) return;
  sum_ = end_;
  const Presence& summed = slice.rows->mine((*slice.plan)[step + 1].level);
  end_ += roundUp(packedBefore(summed, sumHeld_, slice.layout->elements));
}

std::uint64_t SparseStep::receivedBytes() const {
  std::uint64_t bytes = 0;
  for (const Rail& rail : slice_.layout->at(level_).rails) {
    const bool whole = (*slice_.plan)[step_].verb == Verb::AllReduce;
    const Range range = whole ? rail.range : rail.shards[static_cast<std::size_t>(rail.self)];
    for (const int owner : rail.owners) {
      if (owner != slice_.rows->rank()) bytes += bytesOf(owner, range);
    }
  }
  return bytes;
}

std::uint64_t SparseStep::packedBefore(const Presence& presence, const std::vector<Range>& held,
                                       std::uint64_t at) const {
  std::uint64_t bytes = 0;
  for (const Range& range : held) {
    if (range.begin < at) bytes += presence.within(inCall({range.begin, std::min(range.end, at)}));
  }
  return bytes;
}

std::byte* SparseStep::inputAt(std::uint64_t at) const {
  return slice_.image + input_ + packedBefore(slice_.rows->mine(level_), inputHeld_, at);
}

RowSum SparseStep::sumOf(const Range& range) const {
  RowSum sum{.reduction = slice_.reductionOf(slice_.portions.front(), step_), .range = inCall(range)};
  if (sum_ == 0) {
    sum.out = slice_.image + range.begin;
    return sum;
  }
  sum.packed = true;
  sum.out =
      slice_.image + sum_ + packedBefore(slice_.rows->mine((*slice_.plan)[step_ + 1].level), sumHeld_, range.begin);
  return sum;
}

RowInput SparseStep::inputOf(int rank, const std::byte* data, double scale) const {
  return {&presenceOf(rank), data, scale};
}

}  // namespace fairring
