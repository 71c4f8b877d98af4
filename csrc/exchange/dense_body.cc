#include "exchange/dense_body.h"

#include <algorithm>
#include <span>
#include <utility>

#include "exchange/transfers.h"

namespace fairring {

namespace {

// The machine's owners whose tensors a step covers. In a scatter that is only the root, which may be elsewhere.
std::span<const int> contributors(const Slice& slice, std::size_t step) {
  const std::span<const int> owners = machineRail(slice)->owners;
  if ((*slice.plan)[step].verb != Verb::Scatter) return owners;
  const int root = slice.layout->at(0).root;
  return root < 0 ? owners.first(0) : owners.subspan(static_cast<std::size_t>(root), 1);
}

// The part of the machine's rail that this rank sums in the step.
Range combinedRange(const Slice& slice, std::size_t step) {
  const Rail* const rail = machineRail(slice);
  return rail == nullptr ? Range{} : reducedRange((*slice.plan)[step], *rail);
}

void addCopies(std::vector<Copy>& copies, const Slice& slice, const Range& range) {
  for (const Portion& portion : within(slice.portions, range)) {
    if (portion.from == nullptr) continue;
    copies.push_back({slice.image + portion.begin, portion.from, portion.end() - portion.begin});
  }
}

// Uses the places of the owners' contributions, those of each group first, if there are any. A group's sum replaces
// this rank's own contribution, where the result belongs anyway, or the first received one.
void addSums(Sums& sums, const Sum& whole, const std::vector<std::byte*>& places, int self, int groups) {
  Reduction undivided = whole.reduction;
  undivided.divisor = 1;
  std::vector<std::byte*> sumsOfGroups;
  for (int group = 0; group < groups; ++group) {
    const auto [first, end] = boundsOf(group, groups, static_cast<int>(places.size()));
    const bool isOwn = self >= first && self < end;
    sumsOfGroups.push_back(isOwn ? whole.out : places[static_cast<std::size_t>(first)]);
    sums.open(undivided, sumsOfGroups.back(), whole.elements);
    for (int owner = first; owner < end; ++owner) sums.add({places[static_cast<std::size_t>(owner)]});
  }
  sums.open(whole.reduction, whole.out, whole.elements);
  for (const std::byte* place : groups > 0 ? sumsOfGroups : places) sums.add({place});
}

}  // namespace

const Rail* machineRail(const Slice& slice) {
  const LevelLayout& machine = slice.layout->at(0);
  return machine.rails.empty() ? nullptr : &machine.rails.front();
}

Range machineShard(const Slice& slice) {
  const Rail* rail = machineRail(slice);
  return rail == nullptr ? Range{} : rail->own();
}

std::uint64_t DenseBody::stagingBytes(const Slice& slice) const {
  return fairring::stagingBytes(*slice.plan, *slice.layout);
}

std::uint64_t DenseBody::imageBytes(const Slice& slice, int) const { return slice.layout->bytes; }

// A load fills in the own block, an all-reduce everything, a reduction all but the own shard, which no other rank
// reads.
Job DenseBody::fill(const Slice& slice, std::size_t step) const {
  std::vector<Copy> copies;
  const Verb verb = (*slice.plan)[step].verb;
  const Rail* const rail = machineRail(slice);
  if (verb == Verb::Load || (verb == Verb::AllReduce && !slice.isInTensor())) {
    addCopies(copies, slice, {0, slice.layout->bytes});
  } else if (verb != Verb::AllReduce && rail != nullptr) {
    for (std::size_t owner = 0; owner < rail->shards.size(); ++owner) {
      if (static_cast<int>(owner) != rail->self) addCopies(copies, slice, rail->shards[owner]);
    }
  }
  return jobOf(std::move(copies), slice.streams);
}

// Sums my shard over all ranks' images. My own elements come from the tensor itself. An all-reduce sums everything into
// the tensors, because the others read my image meanwhile; so my own come from the image, as two tensors may be one.
Job DenseBody::combine(const Slice& slice, std::size_t step, const PeerImages& images) const {
  const Range range = combinedRange(slice, step);
  if (range.size() == 0 || slice.isInTensor()) return {};
  const bool isAll = (*slice.plan)[step].verb == Verb::AllReduce;
  const Rail& rail = *machineRail(slice);
  const int self = rail.owners[static_cast<std::size_t>(rail.self)];
  const auto ranks = contributors(slice, step);
  if (ranks.empty()) return {};
  Sums sums;
  for (const Portion& portion : within(slice.portions, range)) {
    std::byte* const own = slice.image + portion.begin;
    std::byte* const out = isAll ? portion.to : own;
    if (out == nullptr) continue;
    sums.open(slice.reductionOf(portion, step), out, portion.elements);
    for (const int rank : ranks) {
      Input input{isAll || portion.from == nullptr ? own : portion.from, slice.scale};
      if (rank != self) input = {images.at(rank).data + portion.begin, images.at(rank).scale};
      if (!isFloat(portion.reduction.dtype)) input.scale = 1.0;
      sums.add(input);
    }
  }
  return jobOf(std::move(sums));
}

std::uint64_t DenseBody::bytesCombined(const Slice& slice, std::size_t step, int peer) const {
  const Range range = combinedRange(slice, step);
  if (range.size() == 0) return 0;
  const auto ranks = contributors(slice, step);
  return std::ranges::find(ranks, peer) == ranks.end() ? 0 : range.size();
}

std::vector<Copy> DenseBody::deliver(const Slice& slice, const Range& shard, const std::byte* image) const {
  std::vector<Copy> copies;
  if (shard.size() == 0 || slice.isInTensor()) return copies;
  for (const Portion& portion : within(slice.portions, shard)) {
    if (portion.to == nullptr) continue;
    copies.push_back({portion.to, image + portion.begin, portion.end() - portion.begin});
  }
  return copies;
}

std::vector<Transfer> DenseBody::transfers(const Slice& slice, std::size_t step) const {
  const Step& what = (*slice.plan)[step];
  const LevelLayout& layout = slice.layout->at(what.level);
  std::byte* area = reduces(what.verb) ? slice.areasOf(step) : nullptr;
  std::vector<Transfer> transfers;
  for (const Rail& rail : layout.rails) {
    for (std::size_t owner = 0; owner < rail.owners.size(); ++owner) {
      if (static_cast<int>(owner) == rail.self) continue;
      const auto [sent, received] = rangesOf(what, rail, layout.root, static_cast<int>(owner));
      transfers.push_back({.peer = rail.owners[owner],
                           .rail = rail.range.begin,
                           .sendFrom = slice.at(sent),
                           .sendBytes = sent.size(),
                           .receiveBytes = received.size(),
                           .receiveAt = area != nullptr ? area : slice.at(received)});
      if (area != nullptr) area += received.size();
    }
  }
  return transfers;
}

Sums DenseBody::sums(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) {
  const Step& what = (*slice.plan)[step];
  Sums sums;
  auto transfer = transfers.cbegin();
  const LevelLayout& layout = slice.layout->at(what.level);
  for (const Rail& rail : layout.rails) {
    const Range range = reducedRange(what, rail);
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

Job DenseBody::afterReceiving(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const {
  return reduces((*slice.plan)[step].verb) ? jobOf(sums(slice, step, transfers)) : Job();
}

}  // namespace fairring
