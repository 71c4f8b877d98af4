#include "exchange/shared_memory.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cassert>

#include "exchange/summation.h"

namespace fairring {

SharedMemory::SharedMemory(Loop& loop, std::vector<int> ranks, int rank, std::uint64_t stagingBytes, Troubles troubles)
    : loop_(loop),
      ranks_(std::move(ranks)),
      rank_(rank),
      troubles_(std::move(troubles)),
      marks_(ranks_, rank, stagingBytes) {
  assert(loop_.isCurrent());
  loop_.watch(marks_.wakeUp(), EPOLLIN, [this](std::uint32_t) {
    marks_.quiet();
    advanceAll();
  });
  loop_.lookOut(this, {[this] { return look(); }, [this](bool looking) { marks_.setLooking(looking); }});
}

SharedMemory::~SharedMemory() {
  loop_.forgetLookout(this);
  loop_.unwatch(marks_.wakeUp());
  loop_.dropWork(this);
}

void SharedMemory::stop() {
  stopped_ = true;
  loop_.dropWork(this);
  for (const auto& [number, state] : slices_) {
    if (state.phase != Phase::Gathered) loop_.await(-1);
  }
  slices_.clear();
}

const Rail* SharedMemory::railOf(const InFlight& state) const {
  const LevelLayout& level = state.slice->layout->at(0);
  return level.rails.empty() ? nullptr : &level.rails.front();
}

void SharedMemory::admit(const std::shared_ptr<Slice>& slice) {
  assert(loop_.isCurrent() && slices_.size() < kMostSlices);
  InFlight state;
  state.slice = slice;
  slices_.emplace(slice->number, std::move(state));
  loop_.await(1);
  for (const int peer : std::set<int>(left_)) leave(peer);
}

void SharedMemory::start(const std::shared_ptr<Slice>& slice, std::size_t step, Events events) {
  assert(loop_.isCurrent() && !stopped_);
  InFlight& state = slices_.at(slice->number);
  state.step = step;
  state.events = std::move(events);
  if ((*slice->plan)[step].verb == Verb::ReduceScatter) {
    fill(state);
  } else {
    gather(state);
  }
}

// All but my own shard, which nobody else reads.
void SharedMemory::fill(InFlight& state) {
  enter(state, Phase::Filling);
  const Slice& slice = *state.slice;
  std::vector<Sum> copies;
  if (const Rail* rail = railOf(state)) {
    for (std::size_t i = 0; i < rail->owners.size(); ++i) {
      const Range shard = rail->shards[i];
      if (static_cast<int>(i) == rail->self || shard.size() == 0) continue;
      const std::uint64_t offset = slice.byteOffset(shard.begin);
      copies.push_back({slice.image + offset, {{slice.user + offset}}, shard.size()});
    }
  }
  const std::uint64_t number = slice.number;
  sumInPieces(loop_, this, number, {.dtype = slice.reduction.dtype}, std::move(copies), [this, number] {
    InFlight& filled = slices_.at(number);
    enter(filled, Phase::Filled);
    marks_.say(number, {filled.slice->stagingOffset, filled.slice->signature, filled.slice->scale});
    marks_.tell(&Marks::Mark::filled, number);
    advance(number);
  });
}

void SharedMemory::sum(InFlight& state) {
  enter(state, Phase::Summing);
  const Slice& slice = *state.slice;
  std::vector<Sum> sums;
  const Rail* rail = railOf(state);
  if (rail != nullptr && rail->shards[static_cast<std::size_t>(rail->self)].size() > 0) {
    const Range shard = rail->shards[static_cast<std::size_t>(rail->self)];
    const std::uint64_t offset = slice.byteOffset(shard.begin);
    Sum sum{.out = slice.image + offset, .inputs = {}, .elements = shard.size()};
    for (const int owner : rail->owners) {
      const Image from = owner == rank_ ? Image{slice.user, slice.scale} : state.images.at(owner);
      if (owner != rank_) traffic_.add(slice.bytes(shard));
      sum.inputs.push_back({from.data + offset, from.scale});
    }
    sums.push_back(std::move(sum));
  }
  const std::uint64_t number = slice.number;
  sumInPieces(loop_, this, number, slice.reductionOf(state.step), std::move(sums), [this, number] {
    InFlight& summed = slices_.at(number);
    const auto released = summed.events.released;
    raise(summed, Phase::Summed);
    if (!stopped_) released();  // the image stays in use until the all-gather is released
  });
}

void SharedMemory::gather(InFlight& state) {
  enter(state, Phase::Gathering);
  if (railOf(state) != nullptr) state.ungathered.insert(ranks_.begin(), ranks_.end());
  marks_.tell(&Marks::Mark::summed, state.slice->number);
  advance(state.slice->number);
}

void SharedMemory::enter(InFlight& state, Phase phase) {
  state.phase = phase;
  state.arrived = 0;
}

void SharedMemory::raise(InFlight& state, Phase phase) {
  enter(state, phase);
  const auto ready = std::move(state.events.ready);
  ready();
}

// What the others say of their images, before anything is read there. False where it can't be true.
bool SharedMemory::readMarks(InFlight& state) {
  const Slice& slice = *state.slice;
  const std::uint64_t imageBytes = slice.byteOffset(slice.layout->elements);
  const std::uint64_t stagingBytes = marks_.stagingBytes();
  for (const int rank : ranks_) {
    if (rank == rank_) continue;
    const Marks::Said said = marks_.said(rank, slice.number);
    if (said.signature != slice.signature) {
      troubles_.differs(rank);
      return false;
    }
    if (said.stagingOffset > stagingBytes || imageBytes > stagingBytes - said.stagingOffset) {
      troubles_.failed(makeError(ErrorKind::Connection, "rank ", rank, " says its image of slice ", slice.number,
                                 " lies at ", said.stagingOffset, " of ", stagingBytes,
                                 " bytes, which leaves no room for ", imageBytes));
      return false;
    }
    state.images[rank] = {marks_.stagingOf(rank) + said.stagingOffset, said.scale};
  }
  return true;
}

void SharedMemory::advance(std::uint64_t number) {
  const auto found = slices_.find(number);
  if (found == slices_.end()) return;
  InFlight& state = found->second;
  if (state.phase == Phase::Filled && marks_.behind(&Marks::Mark::filled, number).empty()) {
    if (readMarks(state)) sum(state);
    return;
  }
  if (state.phase == Phase::Gathering) {
    gatherWhatIsThere(state);
    if (state.copies > 0 || !state.ungathered.empty()) return;
    marks_.tell(&Marks::Mark::finished, number);
    loop_.await(-1);
    raise(state, Phase::Gathered);
    if (stopped_) return;
  }
  if (state.phase == Phase::Gathered && marks_.behind(&Marks::Mark::finished, number).empty()) {
    const auto released = std::move(state.events.released);
    slices_.erase(number);
    released();
  }
}

void SharedMemory::gatherWhatIsThere(InFlight& state) {
  const Slice& slice = *state.slice;
  const std::set<int> late = marks_.behind(&Marks::Mark::summed, slice.number);
  std::vector<Sum> copies;
  for (const int rank : std::set<int>(state.ungathered)) {
    if (late.contains(rank)) continue;
    state.ungathered.erase(rank);
    const Rail& rail = *railOf(state);
    const Range shard =
        rail.shards[static_cast<std::size_t>(std::ranges::find(rail.owners, rank) - rail.owners.begin())];
    const std::uint64_t offset = slice.byteOffset(shard.begin);
    const std::byte* image = rank == rank_ ? slice.image : state.images.at(rank).data;
    if (shard.size() == 0) continue;
    copies.push_back({slice.user + offset, {{image + offset}}, shard.size()});
    if (rank != rank_) traffic_.add(slice.bytes(shard));
  }
  if (copies.empty()) return;
  ++state.copies;
  sumInPieces(loop_, this, slice.number, {.dtype = slice.reduction.dtype}, std::move(copies),
              [this, number = slice.number] {
                --slices_.at(number).copies;
                advance(number);
              });
}

void SharedMemory::advanceAll() {
  std::vector<std::uint64_t> numbers;
  numbers.reserve(slices_.size());
  for (const auto& [number, state] : slices_) numbers.push_back(number);
  for (const std::uint64_t number : numbers) {
    if (!stopped_) advance(number);
  }
  for (const int peer : std::set<int>(left_)) {
    if (!stopped_) leave(peer);
  }
}

// The mark of the others that stands between a slice and its next phase.
Marks::Progress SharedMemory::awaited(Phase phase) {
  switch (phase) {
    case Phase::Admitted:
    case Phase::Filling:
    case Phase::Filled: return &Marks::Mark::filled;
    case Phase::Summing: return nullptr;
    case Phase::Summed:
    case Phase::Gathering: return &Marks::Mark::summed;
    case Phase::Gathered: return &Marks::Mark::finished;
  }
  return nullptr;
}

std::set<int> SharedMemory::waitingFor(const InFlight& state) const {
  const auto mark = awaited(state.phase);
  return mark == nullptr ? std::set<int>() : marks_.behind(mark, state.slice->number);
}

// True where some peer has moved on since the last look. Allocates nothing: this is what a caller spins on.
bool SharedMemory::look() {
  bool moved = false;
  for (auto& [number, state] : slices_) {
    if (state.phase != Phase::Filled && state.phase != Phase::Gathering && state.phase != Phase::Gathered) continue;
    const std::size_t arrived = marks_.arrived(awaited(state.phase), number);
    moved = moved || arrived > state.arrived;
    state.arrived = arrived;
  }
  if (moved) advanceAll();
  return moved;
}

std::set<int> SharedMemory::missing() const {
  std::set<int> peers;
  for (const auto& [number, state] : slices_) {
    if (state.phase == Phase::Filled || state.phase == Phase::Gathering) peers.merge(waitingFor(state));
  }
  return peers;
}

bool SharedMemory::needs(int peer, std::uint64_t slicesBelow) const {
  return std::ranges::any_of(
      slices_, [&](const auto& entry) { return entry.first < slicesBelow && waitingFor(entry.second).contains(peer); });
}

void SharedMemory::leave(int peer) {
  left_.insert(peer);
  if (!needs(peer, UINT64_MAX)) return;
  troubles_.failed(hasLeft(rank_, peer));
}

}  // namespace fairring
