#include "exchange/eager.h"

#include <algorithm>

#include "exchange/slice_id.h"

namespace fairring {

namespace {

// The most that a peer may have set aside: its credit, and, for slices that have their staging, messages that arrive
// before their place there is free again.
std::uint64_t mostHeld(const EagerLimits& limits) {
  return kSliceQueues.size() * (limits.creditBytes + 64 * limits.messageBytes);
}

}  // namespace

bool EagerCredit::take(std::uint64_t slice, std::uint64_t bytes, const EagerLimits& limits) {
  if (bytes > limits.messageBytes) return false;
  if (hasAdmitted(slice)) return true;
  if (outstanding_ + bytes > limits.creditBytes) return false;
  outstanding_ += bytes;
  bytes_[slice] += bytes;
  return true;
}

void EagerCredit::heard(std::uint64_t slice) {
  admitted_ = std::max(admitted_, slice + 1);
  while (!bytes_.empty() && bytes_.begin()->first < admitted_) {
    outstanding_ -= bytes_.begin()->second;
    bytes_.erase(bytes_.begin());
  }
}

std::byte* UnexpectedMessages::place(int peer, const SliceHeader& header) {
  if (header.bytes > limits_.messageBytes || bytes_[peer] + header.bytes > mostHeld(limits_)) return nullptr;
  const auto [entry, isNew] = messages_.try_emplace({header.slice, header.step, peer, header.rail});
  if (!isNew) return nullptr;
  bytes_[peer] += header.bytes;
  entry->second = {header, std::vector<std::byte>(header.bytes), false};
  return entry->second.bytes.data();
}

bool UnexpectedMessages::arrived(int peer, const SliceHeader& header) {
  const auto found = messages_.find({header.slice, header.step, peer, header.rail});
  if (found == messages_.end()) return false;
  found->second.here = true;
  return true;
}

std::vector<std::pair<int, UnexpectedMessages::Unexpected>> UnexpectedMessages::take(std::uint64_t slice,
                                                                                     std::size_t step) {
  std::vector<std::pair<int, Unexpected>> taken;
  auto next = messages_.lower_bound({slice, step, -1, 0});
  while (next != messages_.end() && next->first.slice == slice && next->first.step == step) {
    const auto current = next++;
    if (!current->second.here) continue;
    const int peer = current->first.peer;
    bytes_[peer] -= current->second.header.bytes;
    taken.emplace_back(peer, std::move(current->second));
    messages_.erase(current);
  }
  return taken;
}

}  // namespace fairring
