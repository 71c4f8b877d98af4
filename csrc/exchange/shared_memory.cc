#include "exchange/shared_memory.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "exchange/slice_body.h"

namespace fairring {

SharedMemory::SharedMemory(Loop& loop, std::vector<int> ranks, int rank, std::uint64_t stagingBytes, Troubles troubles)
    : Exchange(std::move(troubles)),
      loop_(loop),
      ranks_(std::move(ranks)),
      rank_(rank),
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
  ringDoorbells();  // a peer may need no more than the flags set so far
  loop_.removePoller(this);
  loop_.unwatch(flags_.doorbell());
  loop_.dropWork(this);
}

void SharedMemory::stop() {
  loop_.dropWork(this);
  for (const auto& [id, state] : slices_) {
    if (state.phase != Phase::Gathered) loop_.addPending(-1);
  }
  slices_.clear();
}

void SharedMemory::admit(const std::shared_ptr<Slice>& slice) {
  assert(loop_.isCurrent() && slices_.size() < 2 * kMostSlices);
  InFlight state;
  state.slice = slice;
  slice->streams = ranks_.size() > 1 && stores_.streams(slice->id, slice->layout->bytes);
  slices_.emplace(slice->id, std::move(state));
  loop_.addPending(1);
  failIfLeftPeersAreNeeded();
}

void SharedMemory::start(const std::shared_ptr<Slice>& slice, std::size_t step, Events events) {
  assert(loop_.isCurrent());
  InFlight& state = slices_.at(slice->id);
  state.step = step;
  state.events = std::move(events);
  state.record = Recorder::recordOf(*slice, step);
  state.record.began = timeBy(recorder_);
  switch ((*slice->plan)[step].verb) {
    case Verb::ReduceScatter:
    case Verb::AllReduce:
    case Verb::Scatter:
    case Verb::AllToAll: return prepare(state);
    case Verb::AllGather:
    case Verb::Gather: return gather(state);
    case Verb::Load: return load(state);
    case Verb::Store: return store(state);
    case Verb::Relay: break;  // there is none at this level
  }
  assert(false);
}

// Puts a job of the slice on the loop; the continuation follows.
void SharedMemory::run(InFlight& state, Job job, void (SharedMemory::*then)(InFlight&)) {
  if (isMeasured(state)) job = std::move(job).timed(state.busy);
  if (job.runAtOnce()) return (this->*then)(state);
  std::move(job).run(loop_, this, urgencyOf(state.slice->id),
                     [this, id = state.slice->id, then] { (this->*then)(slices_.at(id)); });
}

void SharedMemory::publish(const Slice& slice) {
  flags_.publish(slice.id, {slice.stagingOffset, slice.signature, slice.scale, slice.refused, stores_.own()});
}

// If several slices are in flight, the peers are woken once for all flags of a turn. If woken at each flag, they would
// do one slice at a time, and with more ranks than cores take the cores from one another.
void SharedMemory::signal(ProgressFlags::Progress progress, SliceId slice) {
  flags_.signal(progress, slice);
  signalled_ = true;
  if (slices_.size() == 1) ringDoorbells();
}

void SharedMemory::ringDoorbells() {
  if (std::exchange(signalled_, false)) flags_.ringDoorbells();
}

void SharedMemory::prepare(InFlight& state) {
  enter(state, Phase::Filling);
  run(state, state.slice->body->prepare(*state.slice), &SharedMemory::fill);
}

void SharedMemory::fill(InFlight& state) {
  run(state, state.slice->body->fill(*state.slice, state.step), &SharedMemory::filled);
}

void SharedMemory::filled(InFlight& state) {
  const SliceId id = state.slice->id;
  enter(state, Phase::Filled);
  state.record.offered = timeBy(recorder_);
  publish(*state.slice);
  signal(&ProgressFlags::Line::filled, id);
  advance(id);
}

void SharedMemory::combine(InFlight& state) {
  enter(state, Phase::Combining);
  state.hasCombined = true;
  state.record.heard = timeBy(recorder_);
  Slice& slice = *state.slice;
  slice.isDelivering = isAllReduce(state);
  for (const auto& [peer, image] : state.images) {
    const std::uint64_t bytes = slice.body->bytesCombined(slice, state.step, peer);
    if (bytes > 0) traffic_.add(bytes);
  }
  run(state, slice.body->combine(slice, state.step, state.images), &SharedMemory::combined);
}

void SharedMemory::combined(InFlight& state) {
  if (!isAllReduce(state)) return raiseAndRelease(state, Phase::Combined);
  const SliceId id = state.slice->id;
  delivered(state);
  advance(id);
}

bool SharedMemory::isMeasured(const InFlight& state) const {
  return ranks_.size() > 1 && state.slice->layout->bytes >= StoreChoice::kLeastBytes;
}

bool SharedMemory::isAllReduce(const InFlight& state) {
  return (*state.slice->plan)[state.step].verb == Verb::AllReduce;
}

// The result is in the tensors; the others may still read this rank's image.
void SharedMemory::delivered(InFlight& state) {
  const Slice& slice = *state.slice;
  if (isMeasured(state) && state.hasCombined) {
    stores_.took(slice.streams, slice.layout->bytes, std::chrono::nanoseconds(state.busy));
  }
  signal(&ProgressFlags::Line::finished, slice.id);
  loop_.addPending(-1);
  recordEnd(state);
  raise(state, Phase::Gathered);
}

// Serves an all-gather, which reads only this rank's own block.
void SharedMemory::load(InFlight& state) {
  run(state, state.slice->body->fill(*state.slice, state.step), &SharedMemory::loaded);
}

void SharedMemory::loaded(InFlight& state) { raiseAndRelease(state, Phase::Admitted); }

// Serves a reduce-scatter, which writes only this rank's own block. It needs nothing more from the others' images.
void SharedMemory::store(InFlight& state) {
  enter(state, Phase::Gathering);
  if (hasRail(state)) state.ungathered = {rank_};
  advance(state.slice->id);
}

void SharedMemory::gather(InFlight& state) {
  enter(state, Phase::Gathering);
  state.record.offered = state.record.began;
  const bool isAll = (*state.slice->plan)[state.step].verb == Verb::AllGather;
  const LevelLayout& machine = state.slice->layout->at(0);
  if (hasRail(state) && (isAll || machine.rails.front().self == machine.root)) state.ungathered = ranks_;
  publish(*state.slice);
  signal(&ProgressFlags::Line::summed, state.slice->id);
  advance(state.slice->id);
}

void SharedMemory::enter(InFlight& state, Phase phase) {
  state.phase = phase;
  state.arrived = 0;
}

void SharedMemory::raiseAndRelease(InFlight& state, Phase phase) {
  const auto released = std::move(state.events.released);
  recordEnd(state);
  raise(state, phase);
  released();  // the image stays in use until the all-gather is released
}

// Before any peer is told, because then the next step may begin.
void SharedMemory::recordEnd(InFlight& state) {
  if (recorder_ == nullptr) return;
  state.record.ready = state.record.released = timeBy(recorder_);
  recorder_->add(state.record);
}

void SharedMemory::raise(InFlight& state, Phase phase) {
  enter(state, phase);
  const auto ready = std::move(state.events.ready);
  ready();
}

// Reads the others' published values before anything in their images is read. False if a value can't be true.
bool SharedMemory::readFlags(InFlight& state) {
  return std::ranges::all_of(ranks_, [&](int rank) { return rank == rank_ || readMark(rank, state); });
}

bool SharedMemory::readMark(int rank, InFlight& state) {
  const Slice& slice = *state.slice;
  const std::uint64_t stagingBytes = flags_.stagingBytes();
  const ProgressFlags::Published published = flags_.published(rank, slice.id);
  if (published.signature != slice.signature) {
    troubles_.differs(rank);
    return false;
  }
  const std::uint64_t imageBytes = slice.body->imageBytes(slice, rank);
  if (published.stagingOffset > stagingBytes || imageBytes > stagingBytes - published.stagingOffset) {
    troubles_.failed(makeError(ErrorKind::Connection, "rank ", rank, " says its image of slice ", slice.id.onWire(),
                               " lies at ", published.stagingOffset, " of ", stagingBytes,
                               " bytes, which leaves no room for ", imageBytes));
    return false;
  }
  state.slice->refuse(published.refused);
  stores_.heard(rank, published.costs);
  state.images[rank] = {flags_.stagingOf(rank) + published.stagingOffset, published.scale};
  return true;
}

void SharedMemory::advance(SliceId id) {
  const auto found = slices_.find(id);
  if (found == slices_.end()) return;
  InFlight& state = found->second;
  if (state.phase == Phase::Filled) {
    const int missing = flags_.someBehind(&ProgressFlags::Line::filled, id);
    if (missing >= 0) {
      state.record.peer = missing;  // as of the last poll before all were there
    } else if (readFlags(state)) {
      combine(state);
    }
    return;
  }
  if (state.phase == Phase::Gathering) {
    if (gatherWhatIsThere(state) || state.copies > 0 || !state.ungathered.empty()) return;
    delivered(state);
  }
  if (state.phase == Phase::Gathered && flags_.haveAll(&ProgressFlags::Line::finished, id)) {
    const auto released = std::move(state.events.released);
    slices_.erase(id);
    released();
  }
}

// True if something is being copied: the end of the copy advances the slice, and may have done so already.
// A rank's published values are read again after a reduce-scatter, since it may have learnt of refusals in it.
bool SharedMemory::gatherWhatIsThere(InFlight& state) {
  const Slice& slice = *state.slice;
  const auto there = std::ranges::partition(
      state.ungathered, [&](int rank) { return !flags_.has(rank, &ProgressFlags::Line::summed, slice.id); });
  std::vector<Copy> copies;
  for (const int rank : there) {
    if (rank != rank_ && !readMark(rank, state)) return true;  // the slice goes, with all others
    gatherFrom(rank, state, copies);
  }
  if (!there.empty()) state.record.heard = timeBy(recorder_);
  state.ungathered.erase(there.begin(), there.end());
  if (!state.ungathered.empty()) state.record.peer = state.ungathered.front();
  if (copies.empty()) return false;
  ++state.copies;
  run(state, jobOf(std::move(copies)), &SharedMemory::copied);
  return true;
}

void SharedMemory::copied(InFlight& state) {
  --state.copies;
  advance(state.slice->id);
}

void SharedMemory::gatherFrom(int rank, const InFlight& state, std::vector<Copy>& copies) {
  const Slice& slice = *state.slice;
  const Rail& rail = slice.layout->at(0).rails.front();
  const Range shard = rail.shards[static_cast<std::size_t>(std::ranges::find(rail.owners, rank) - rail.owners.begin())];
  const std::byte* image = rank == rank_ ? slice.image : state.images.at(rank).data;
  const std::vector<Copy> more = slice.body->deliver(slice, shard, image);
  copies.insert(copies.end(), more.begin(), more.end());
  if (rank != rank_ && !more.empty()) traffic_.add(shard.size());
}

void SharedMemory::advanceAll() {
  for (auto next = slices_.begin(); next != slices_.end();) {  // one that advances may end, and admit others
    const SliceId id = next->first;
    advance(id);
    next = slices_.upper_bound(id);
  }
  failIfLeftPeersAreNeeded();
}

}  // namespace fairring
