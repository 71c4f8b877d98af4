#include "exchange/shared_memory.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "exchange/sparse_rows.h"
#include "exchange/summation.h"

namespace fairring {

SharedMemory::SharedMemory(Loop& loop, std::vector<int> ranks, int rank, std::uint64_t stagingBytes, Troubles troubles)
    : loop_(loop),
      ranks_(std::move(ranks)),
      rank_(rank),
      troubles_(std::move(troubles)),
      flags_(ranks_, rank, stagingBytes) {
  assert(loop_.isCurrent());
  loop_.watch(flags_.doorbell(), EPOLLIN, [this](std::uint32_t) {
    flags_.drainDoorbell();
    advanceAll();
  });
  loop_.addPoller(this, {.poll = [this] { return poll(); },
                         .setPolling = [this](bool polling) { flags_.setPolling(polling); },
                         .turnEnds = [this] { ringDoorbells(); }});
}

SharedMemory::~SharedMemory() {
  ringDoorbells();  // a peer may need no more than what has been told
  loop_.removePoller(this);
  loop_.unwatch(flags_.doorbell());
  loop_.dropWork(this);
}

void SharedMemory::stop() {
  stopped_ = true;
  loop_.dropWork(this);
  for (const auto& [number, state] : slices_) {
    if (state.phase != Phase::Gathered) loop_.addPending(-1);
  }
  slices_.clear();
}

const Rail* SharedMemory::railOf(const InFlight& state) const {
  const LevelLayout& level = state.slice->layout->at(0);
  return level.rails.empty() ? nullptr : &level.rails.front();
}

void SharedMemory::admit(const std::shared_ptr<Slice>& slice) {
  assert(loop_.isCurrent() && slices_.size() < kTrafficClasses.size() * kMostSlices);
  InFlight state;
  state.slice = slice;
  slices_.emplace(slice->number, std::move(state));
  loop_.addPending(1);
  for (const int peer : std::set<int>(left_)) leave(peer);
}

void SharedMemory::start(const std::shared_ptr<Slice>& slice, std::size_t step, Events events) {
  assert(loop_.isCurrent() && !stopped_);
  InFlight& state = slices_.at(slice->number);
  state.step = step;
  state.events = std::move(events);
  switch ((*slice->plan)[step].verb) {
    case Verb::ReduceScatter: return prepare(state);
    case Verb::AllGather: return gather(state);
    case Verb::Load: return load(state);
    case Verb::Store: return store(state);
    case Verb::AllReduce: break;  // there is none at this level
  }
  assert(false);
}

void SharedMemory::publish(const Slice& slice) {
  flags_.publish(slice.number, {slice.stagingOffset, slice.signature, slice.scale, slice.refused});
}

// With several slices in flight the peers are woken once for all that is told in a turn: each at its first flag, they
// would do one slice at a time, and where there are more ranks than cores take them from one another.
void SharedMemory::signal(ProgressFlags::Progress progress, std::uint64_t slice) {
  flags_.signal(progress, slice);
  signalled_ = true;
  if (slices_.size() == 1) ringDoorbells();
}

void SharedMemory::ringDoorbells() {
  if (std::exchange(signalled_, false)) flags_.ringDoorbells();
}

void SharedMemory::prepare(InFlight& state) {
  enter(state, Phase::Filling);
  const Slice& slice = *state.slice;
  if (!slice.prepare) return fill(state);
  const std::uint64_t end = slice.begin + slice.layout->elements;
  Pieces pieces;
  for (std::uint64_t at = slice.begin; at < end; at += kPieceBytes)
    pieces.emplace_back([make = slice.prepare, bytes = Range{at, std::min(at + kPieceBytes, end)}] { make(bytes); });
  runInPieces(loop_, this, urgencyOf(slice.number), std::move(pieces),
              [this, number = slice.number] { fill(slices_.at(number)); });
}

// All but my own shard, which nobody else reads.
void SharedMemory::fill(InFlight& state) {
  const Slice& slice = *state.slice;
  std::vector<Copy> copies;
  if (const Rail* rail = railOf(state)) {
    for (std::size_t i = 0; i < rail->owners.size(); ++i) {
      const Range shard = rail->shards[i];
      if (static_cast<int>(i) == rail->self || shard.size() == 0) continue;
      if (slice.rows) {
        if (const auto rows = copyOfRows(slice, shard)) copies.push_back(*rows);
        continue;
      }
      for (const Portion& portion : within(slice.portions, shard)) {
        if (portion.from == nullptr) continue;
        copies.push_back({slice.image + portion.begin, portion.from, portion.end() - portion.begin});
      }
    }
  }
  const std::uint64_t number = slice.number;
  copyInPieces(loop_, this, urgencyOf(number), std::move(copies), [this, number] {
    InFlight& filled = slices_.at(number);
    enter(filled, Phase::Filled);
    publish(*filled.slice);
    signal(&ProgressFlags::Line::filled, number);
    advance(number);
  });
}

void SharedMemory::sum(InFlight& state) {
  enter(state, Phase::Summing);
  const Slice& slice = *state.slice;
  if (slice.rows) return sumRows(state);
  Sums sums;
  const Rail* rail = railOf(state);
  if (rail != nullptr && rail->shards[static_cast<std::size_t>(rail->self)].size() > 0) {
    const Range shard = rail->shards[static_cast<std::size_t>(rail->self)];
    for (const int owner : rail->owners) {
      if (owner != rank_) traffic_.add(slice.bytes(shard));
    }
    for (const Portion& portion : within(slice.portions, shard)) addSum(sums, state, portion, rail->owners);
  }
  const std::uint64_t number = slice.number;
  sumInPieces(loop_, this, urgencyOf(number), std::move(sums), [this, number] { summed(number); });
}

void SharedMemory::summed(std::uint64_t slice) {
  InFlight& state = slices_.at(slice);
  const auto released = state.events.released;
  raise(state, Phase::Summed);
  if (!stopped_) released();  // the image stays in use until the all-gather is released
}

// Of my shard, over all ranks' images; my own elements come from the tensor itself.
void SharedMemory::addSum(Sums& sums, const InFlight& state, const Portion& portion,
                          const std::vector<int>& owners) const {
  const Slice& slice = *state.slice;
  std::byte* const out = slice.image + portion.begin;
  sums.open(slice.reductionOf(portion, state.step), out, portion.elements);
  for (const int owner : owners) {
    Input input{portion.from != nullptr ? portion.from : out, slice.scale};
    if (owner != rank_) input = {state.images.at(owner).data + portion.begin, state.images.at(owner).scale};
    if (!isFloat(portion.reduction.dtype)) input.scale = 1.0;
    sums.add(input);
  }
}

// Of an all-gather, which reads nothing but this rank's own block.
void SharedMemory::load(InFlight& state) {
  const Slice& slice = *state.slice;
  std::vector<Copy> copies;
  for (const Portion& portion : slice.portions) {
    if (portion.from == nullptr || portion.elements == 0) continue;
    copies.push_back({slice.image + portion.begin, portion.from, portion.end() - portion.begin});
  }
  copyInPieces(loop_, this, urgencyOf(slice.number), std::move(copies), [this, number = slice.number] {
    InFlight& loaded = slices_.at(number);
    const auto released = loaded.events.released;
    raise(loaded, Phase::Admitted);
    if (!stopped_) released();  // the image stays in use until the all-gather is released
  });
}

// Of a reduce-scatter, which writes nothing but this rank's own block: of the others' images it needs nothing more.
void SharedMemory::store(InFlight& state) {
  enter(state, Phase::Gathering);
  if (railOf(state) != nullptr) state.ungathered = {rank_};
  advance(state.slice->number);
}

void SharedMemory::gather(InFlight& state) {
  enter(state, Phase::Gathering);
  if (railOf(state) != nullptr) state.ungathered = ranks_;
  publish(*state.slice);
  signal(&ProgressFlags::Line::summed, state.slice->number);
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
bool SharedMemory::readFlags(InFlight& state) {
  return std::ranges::all_of(ranks_, [&](int rank) { return rank == rank_ || readMark(rank, state); });
}

bool SharedMemory::readMark(int rank, InFlight& state) {
  const Slice& slice = *state.slice;
  const std::uint64_t stagingBytes = flags_.stagingBytes();
  const ProgressFlags::Published published = flags_.published(rank, slice.number);
  if (published.signature != slice.signature) {
    troubles_.differs(rank);
    return false;
  }
  const std::uint64_t imageBytes = slice.rows ? contributionOffset(slice) + contributionBytes(slice, rank)
                                              : slice.byteOffset(slice.layout->elements);
  if (published.stagingOffset > stagingBytes || imageBytes > stagingBytes - published.stagingOffset) {
    troubles_.failed(makeError(ErrorKind::Connection, "rank ", rank, " says its image of slice ", slice.number,
                               " lies at ", published.stagingOffset, " of ", stagingBytes,
                               " bytes, which leaves no room for ", imageBytes));
    return false;
  }
  state.slice->refuse(published.refused);
  state.images[rank] = {flags_.stagingOf(rank) + published.stagingOffset, published.scale};
  return true;
}

void SharedMemory::advance(std::uint64_t number) {
  const auto found = slices_.find(number);
  if (found == slices_.end()) return;
  InFlight& state = found->second;
  if (state.phase == Phase::Filled && flags_.haveAll(&ProgressFlags::Line::filled, number)) {
    if (readFlags(state)) sum(state);
    return;
  }
  if (state.phase == Phase::Gathering) {
    if (gatherWhatIsThere(state) || stopped_ || state.copies > 0 || !state.ungathered.empty()) return;
    signal(&ProgressFlags::Line::finished, number);
    loop_.addPending(-1);
    raise(state, Phase::Gathered);
    if (stopped_) return;
  }
  if (state.phase == Phase::Gathered && flags_.haveAll(&ProgressFlags::Line::finished, number)) {
    const auto released = std::move(state.events.released);
    slices_.erase(number);
    released();
  }
}

// True where something is being copied: the end of that advances the slice, and may have done so already.
// What a rank says of its image is read again where a reduce-scatter went before: it has learnt of refusals since.
bool SharedMemory::gatherWhatIsThere(InFlight& state) {
  const Slice& slice = *state.slice;
  const auto there = std::ranges::partition(
      state.ungathered, [&](int rank) { return !flags_.has(rank, &ProgressFlags::Line::summed, slice.number); });
  std::vector<Copy> copies;
  for (const int rank : there) {
    if (rank != rank_ && !readMark(rank, state)) return true;  // the slice is gone, with all others
    gatherFrom(rank, state, copies);
  }
  state.ungathered.erase(there.begin(), there.end());
  if (copies.empty()) return false;
  ++state.copies;
  copyInPieces(loop_, this, urgencyOf(slice.number), std::move(copies), [this, number = slice.number] {
    --slices_.at(number).copies;
    advance(number);
  });
  return true;
}

void SharedMemory::gatherFrom(int rank, const InFlight& state, std::vector<Copy>& copies) {
  const Slice& slice = *state.slice;
  const Rail& rail = *railOf(state);
  const Range shard = rail.shards[static_cast<std::size_t>(std::ranges::find(rail.owners, rank) - rail.owners.begin())];
  if (shard.size() == 0) return;
  const std::byte* image = rank == rank_ ? slice.image : state.images.at(rank).data;
  for (const Portion& portion : within(slice.portions, shard)) {
    if (portion.to == nullptr) continue;
    copies.push_back({portion.to, image + portion.begin, portion.end() - portion.begin});
  }
  if (rank != rank_) traffic_.add(slice.bytes(shard));
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

}  // namespace fairring
