// Whom the machine level waits for, slice by slice.
#include <algorithm>

#include "exchange/shared_memory.h"

namespace fairring {

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

bool SharedMemory::needs(int peer, const ByOrder<std::uint64_t>& slicesBelow) const {
  return std::ranges::any_of(slices_, [&](const auto& entry) {
    return entry.first < slicesBelow[orderOf(entry.first)] && waitingFor(entry.second).contains(peer);
  });
}

void SharedMemory::leave(int peer) {
  left_.insert(peer);
  if (!needs(peer)) return;
  troubles_.failed(hasLeft(rank_, peer));
}

}  // namespace fairring
