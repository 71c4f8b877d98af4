#include "simulation/machine_stand_in.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace fairring::simulation {

namespace {

std::uint8_t bitOf(MachineBoard::Flag flag) { return static_cast<std::uint8_t>(1U << static_cast<unsigned>(flag)); }

}  // namespace

void MachineBoard::raise(std::size_t index, Flag flag, const Slice& slice) {
  Marks& marks = marks_[slice.id];
  marks.raised.resize(ranks_);
  marks.images.resize(ranks_);
  marks.images[index] = slice.image;
  marks.raised[index] |= bitOf(flag);
  for (std::size_t other = 0; other < ranks_; ++other) {
    if (other != index && notify_[other]) notify_[other]();
  }
}

bool MachineBoard::has(std::size_t index, Flag flag, SliceId slice) const {
  const auto found = marks_.find(slice);
  return found != marks_.end() && (found->second.raised[index] & bitOf(flag)) != 0;
}

bool MachineBoard::haveAll(Flag flag, SliceId slice) const {
  const auto found = marks_.find(slice);
  return found != marks_.end() &&
         std::ranges::all_of(found->second.raised, [&](std::uint8_t raised) { return (raised & bitOf(flag)) != 0; });
}

const std::byte* MachineBoard::image(std::size_t index, SliceId slice) const { return marks_.at(slice).images[index]; }

void MachineBoard::forget(SliceId slice) {
  if (++marks_[slice].gone == ranks_) marks_.erase(slice);
}

MachineStandIn::MachineStandIn(Loop& loop, MachineBoard& board, std::vector<int> ranks, std::size_t index)
    : loop_(loop), board_(board), ranks_(std::move(ranks)), index_(index) {}

MachineStandIn::~MachineStandIn() { loop_.dropWork(this); }

void MachineStandIn::stop() {
  stopped_ = true;
  loop_.dropWork(this);
  slices_.clear();
}

void MachineStandIn::admit(const std::shared_ptr<Slice>& slice) {
  InFlight state;
  state.slice = slice;
  slices_.emplace(slice->id, std::move(state));
}

void MachineStandIn::run(const InFlight& state, Job job, void (MachineStandIn::*then)(SliceId)) {
  std::move(job).run(loop_, this, urgencyOf(state.slice->id),
                     [this, id = state.slice->id, then] { (this->*then)(id); });
}

void MachineStandIn::start(const std::shared_ptr<Slice>& slice, std::size_t step, Events events) {
  InFlight& state = slices_.at(slice->id);
  state.step = step;
  state.events = std::move(events);
  switch ((*slice->plan)[step].verb) {
    case Verb::ReduceScatter:
    case Verb::Scatter:
    case Verb::AllToAll:
      state.phase = Phase::Filling;
      return run(state, slice->body->fill(*slice, step), &MachineStandIn::filled);
    case Verb::Load:
      state.phase = Phase::Combining;
      return run(state, slice->body->fill(*slice, step), &MachineStandIn::isThrough);
    case Verb::AllGather:
    case Verb::Gather: return gather(state);
    case Verb::Store:
      state.phase = Phase::Gathering;
      state.ungathered = {index_};
      return advance(slice->id);
    case Verb::AllReduce:
    case Verb::Relay: break;  // there is none at this level
  }
  assert(false);
}

void MachineStandIn::filled(SliceId id) {
  InFlight& state = slices_.at(id);
  state.phase = Phase::Filled;
  board_.raise(index_, MachineBoard::Flag::Filled, *state.slice);
  advance(id);
}

// The reducing step, or the load.
void MachineStandIn::isThrough(SliceId id) {
  InFlight& state = slices_.at(id);
  state.phase = Phase::Admitted;
  const auto released = state.events.released;
  const auto ready = std::exchange(state.events.ready, nullptr);
  ready();
  if (!stopped_) released();
}

void MachineStandIn::gather(InFlight& state) {
  const Slice& slice = *state.slice;
  const bool isAll = (*slice.plan)[state.step].verb == Verb::AllGather;
  const LevelLayout& machine = slice.layout->at(0);
  state.phase = Phase::Gathering;
  if (isAll || (!machine.rails.empty() && machine.rails.front().self == machine.root)) {
    for (std::size_t index = 0; index < ranks_.size(); ++index) state.ungathered.push_back(index);
  }
  board_.raise(index_, MachineBoard::Flag::Summed, slice);
  advance(slice.id);
}

// At once, for it is charged already.
void MachineStandIn::deliver(const Slice& slice, std::size_t index) const {
  const LevelLayout& machine = slice.layout->at(0);
  if (machine.rails.empty()) return;
  const std::byte* image = index == index_ ? slice.image : board_.image(index, slice.id);
  for (const Copy& copy : slice.body->deliver(slice, machine.rails.front().shards[index], image))
    std::memcpy(copy.to, copy.from, copy.bytes);
}

void MachineStandIn::advance(SliceId id) {
  const auto found = slices_.find(id);
  if (found == slices_.end()) return;
  InFlight& state = found->second;
  const Slice& slice = *state.slice;
  if (state.phase == Phase::Filled && board_.haveAll(MachineBoard::Flag::Filled, id)) {
    state.phase = Phase::Combining;
    PeerImages images;
    for (std::size_t index = 0; index < ranks_.size(); ++index) {
      if (index != index_) images[ranks_[index]] = {board_.image(index, id), 1.0};
    }
    return run(state, slice.body->combine(slice, state.step, images), &MachineStandIn::isThrough);
  }
  if (state.phase == Phase::Gathering) {
    std::erase_if(state.ungathered, [&](std::size_t index) {
      const bool there = index == index_ || board_.has(index, MachineBoard::Flag::Summed, id);
      if (there) deliver(slice, index);
      return there;
    });
    if (!state.ungathered.empty()) return;
    state.phase = Phase::Gathered;
    board_.raise(index_, MachineBoard::Flag::Finished, slice);
    const auto ready = std::exchange(state.events.ready, nullptr);
    ready();
    if (stopped_) return;
  }
  if (state.phase == Phase::Gathered && board_.haveAll(MachineBoard::Flag::Finished, id)) {
    const auto released = std::exchange(state.events.released, nullptr);
    slices_.erase(id);
    board_.forget(id);
    released();
  }
}

void MachineStandIn::advanceAll() {
  std::vector<SliceId> ids;
  ids.reserve(slices_.size());
  for (const auto& [id, state] : slices_) ids.push_back(id);
  for (const SliceId id : ids) {
    if (!stopped_) advance(id);
  }
}

std::set<int> MachineStandIn::missing() const {
  std::set<int> ranks;
  for (const auto& [id, state] : slices_) {
    if (state.phase != Phase::Filled && state.phase != Phase::Gathering && state.phase != Phase::Gathered) continue;
    for (std::size_t index = 0; index < ranks_.size(); ++index) {
      const auto flag = state.phase == Phase::Filled      ? MachineBoard::Flag::Filled
                        : state.phase == Phase::Gathering ? MachineBoard::Flag::Summed
                                                          : MachineBoard::Flag::Finished;
      if (index != index_ && !board_.has(index, flag, id)) ranks.insert(ranks_[index]);
    }
  }
  return ranks;
}

}  // namespace fairring::simulation
