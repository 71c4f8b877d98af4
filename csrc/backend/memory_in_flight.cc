#include "backend/memory_in_flight.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <utility>

#include "base/cuda_stream.h"

namespace fairring {

void MemoryInFlight::use(bool isUsed) {
  isUsed_ = isUsed;
  std::deque<Entry> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(entries_);
}

MemoryInFlight::Ranges MemoryInFlight::of(const Tensors& tensors) {
  Ranges ranges;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_cuda() || tensor.layout() != at::kStrided || tensor.numel() == 0) continue;
    const auto* const begin = static_cast<const std::byte*>(tensor.const_data_ptr());
    ranges.push_back(
        {begin, begin + at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size())});
  }
  return ranges;
}

void MemoryInFlight::add(Ranges ranges, EnqueuedCall::Ref call) {
  add({.ranges = std::move(ranges), .ours = std::move(call), .nccls = nullptr});
}

void MemoryInFlight::add(Ranges ranges, std::shared_ptr<DelegatedCall> call) {
  add({.ranges = std::move(ranges), .ours = {}, .nccls = std::move(call)});
}

void MemoryInFlight::add(Entry entry) {
  if (entry.ranges.empty()) return;
  std::vector<Entry> dropped;
  const std::lock_guard lock(mutex_);
  dropped = takeThoseOver();
  entries_.push_back(std::move(entry));
}

bool MemoryInFlight::isEmpty() {
  std::vector<Entry> dropped;
  const std::lock_guard lock(mutex_);
  dropped = takeThoseOver();
  return entries_.empty();
}

// Under the lock, after which they are to be dropped.
std::vector<MemoryInFlight::Entry> MemoryInFlight::takeThoseOver() {
  std::vector<Entry> over;
  const CaptureUnheeded unheeded;  // events are asked
  while (!entries_.empty() && entries_.front().isOver()) {
    over.push_back(std::move(entries_.front()));
    entries_.pop_front();
  }
  return over;
}

bool MemoryInFlight::meets(const Ranges& ranges, Whose whose) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(entries_, [&](const Entry& entry) { return entry.meets(ranges, whose); });
}

void MemoryInFlight::holdBack(const c10::Stream& stream, const Ranges& ranges, Whose whose) const {
  std::vector<Entry> met;
  {
    const std::lock_guard lock(mutex_);
    std::ranges::copy_if(entries_, std::back_inserter(met),
                         [&](const Entry& entry) { return entry.meets(ranges, whose); });
  }
  for (const Entry& entry : met) entry.ours ? entry.ours->holdBack(stream) : entry.nccls->holdBack(stream);
}

bool MemoryInFlight::Entry::isOver() const { return ours ? ours->hasLetGo() || ours->isCompleted() : nccls->isOver(); }

bool MemoryInFlight::Entry::meets(const Ranges& others, Whose whose) const {
  if (!ours && whose == Whose::Fairrings) return false;
  const bool meet = std::ranges::any_of(ranges, [&](const Range& range) {
    return std::ranges::any_of(others, [&](const Range& other) { return range.meets(other); });
  });
  return meet && !isOver();
}

}  // namespace fairring
