// The ranks that the machine level waits for, slice by slice.
#include <algorithm>

#include "exchange/shared_memory.h"

namespace fairring {

// The flag of the others that a slice needs for its next phase.
ProgressFlags::Progress SharedMemory::awaited(const InFlight& state) {
  const Plan& plan = *state.slice->plan;
  const auto gathered = gathers(plan.back().verb) ? &ProgressFlags::Line::summed : &ProgressFlags::Line::finished;
  switch (state.phase) {
    case Phase::Admitted:
    case Phase::Filling:
    case Phase::Filled: return plan.front().verb == Verb::Load ? gathered : &ProgressFlags::Line::filled;
    case Phase::Combining: return nullptr;
    case Phase::Combined:
    case Phase::Gathering: return gathered;
    case Phase::Gathered: return &ProgressFlags::Line::finished;
  }
  return nullptr;
}

std::set<int> SharedMemory::waitingFor(const InFlight& state) const {
  const auto flag = awaited(state);
  return flag == nullptr ? std::set<int>() : flags_.behind(flag, state.slice->id);
}

// True if some peer has moved on since the last poll. Allocates nothing: a waiting caller spins on this.
bool SharedMemory::poll() {
  bool moved = false;
  for (auto& [id, state] : slices_) {
    if (state.phase != Phase::Filled && state.phase != Phase::Gathering && state.phase != Phase::Gathered) continue;
    const std::size_t arrived = flags_.arrived(awaited(state), id);
    moved = moved || arrived > state.arrived;
    state.arrived = arrived;
  }
  if (moved) advanceAll();
  return moved;
}

std::vector<SliceRecord> SharedMemory::underWay() const {
  std::vector<SliceRecord> records;
  for (const auto& [id, state] : slices_) {
    if (state.record.began == 0 || state.record.ready != 0) continue;
    SliceRecord record = state.record;
    const std::set<int> late = waitingFor(state);
    if (!late.empty()) record.peer = *late.begin();
    records.push_back(record);
  }
  return records;
}

std::set<int> SharedMemory::missing() const {
  std::set<int> peers;
  for (const auto& [id, state] : slices_) {
    if (state.phase == Phase::Filled || state.phase == Phase::Gathering) peers.merge(waitingFor(state));
  }
  return peers;
}

bool SharedMemory::needs(int peer, const Watermarks& slicesBelow) const {
  return std::ranges::any_of(slices_, [&](const auto& entry) {
    return entry.first.sequence < slicesBelow[entry.first.queue] && waitingFor(entry.second).contains(peer);
  });
}

}  // namespace fairring
