#include "exchange/recorder.h"

#include <algorithm>
#include <cassert>
#include <chrono>

namespace fairring {

namespace {

std::int64_t nanoseconds(Loop::Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

}  // namespace

std::int64_t Recorder::now() { return nanoseconds(Loop::Clock::now()); }

std::int64_t Recorder::time() const { return nanoseconds(loop_.eventTime()); }

std::int64_t Recorder::timeOf(std::uint64_t bytes) const {
  return bytes < kLeastBytes ? time() : nanoseconds(loop_.eventTimeAnew());
}

SliceRecord Recorder::recordOf(const Slice& slice, std::size_t step) {
  const Step& one = (*slice.plan)[step];
  return {.verb = one.verb,
          .level = static_cast<std::uint16_t>(one.level),
          .signature = slice.signature,
          .slice = slice.id.onWire()};
}

// The place of the next record is prefetched: the ring comes round so late that its memory has left the cache, and
// waiting for it took most of the time of recording.
void Recorder::add(const SliceRecord& record) {
  assert(loop_.isCurrent());
  if (records_.empty()) records_.reserve(capacity_);
  if (records_.size() < capacity_) {
    records_.push_back(record);
  } else {
    records_[next_] = record;
  }
  ++added_;
  next_ = next_ + 1 == capacity_ ? 0 : next_ + 1;
  const auto* next = reinterpret_cast<const char*>(records_.data() + next_);
  __builtin_prefetch(next, 1);
  __builtin_prefetch(next + sizeof(SliceRecord) - 1, 1);
}

std::vector<SliceRecord> Recorder::slices(std::int64_t since) const {
  assert(loop_.isCurrent());
  const std::uint64_t oldest = added_ - records_.size();
  std::uint64_t first = added_;
  const auto over = [this](std::uint64_t n) {
    const SliceRecord& record = records_[placeOf(n)];
    return std::max(record.ready, record.released);
  };
  while (first > oldest && over(first - 1) >= since) --first;
  std::vector<SliceRecord> kept;
  kept.reserve(added_ - first);
  for (std::uint64_t n = first; n < added_; ++n) kept.push_back(records_[placeOf(n)]);
  return kept;
}

}  // namespace fairring
