#include "exchange/recorder.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <utility>

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

template <class Record>
template <class Given>
void Recorder::Ring<Record>::add(Given&& record) {
  if (records_.empty()) records_.reserve(capacity_);
  if (records_.size() < capacity_) {
    records_.push_back(std::forward<Given>(record));
  } else {
    records_[next_] = std::forward<Given>(record);
  }
  ++added_;
  next_ = next_ + 1 == capacity_ ? 0 : next_ + 1;
  const auto* next = reinterpret_cast<const char*>(records_.data() + next_);
  __builtin_prefetch(next, 1);
  __builtin_prefetch(next + sizeof(Record) - 1, 1);
}

void Recorder::submitted(CallRecord call) {
  assert(loop_.isCurrent());
  call.begun = time();
  calls_.add(std::move(call));
}

void Recorder::ended(std::uint64_t number, bool failed) {
  assert(loop_.isCurrent());
  for (std::uint64_t n = calls_.end(); n > calls_.first(); --n) {
    CallRecord& call = calls_.at(n - 1);
    if (call.number != number) continue;
    call.ended = time();
    call.failed = failed;
    return;
  }
}

void Recorder::add(const SliceRecord& record) {
  assert(loop_.isCurrent());
  slices_.add(record);
}

std::vector<SliceRecord> Recorder::slices(std::int64_t since) const {
  assert(loop_.isCurrent());
  std::uint64_t first = slices_.end();
  const auto over = [this](std::uint64_t n) { return std::max(slices_.at(n).ready, slices_.at(n).released); };
  while (first > slices_.first() && over(first - 1) >= since) --first;
  std::vector<SliceRecord> kept;
  kept.reserve(slices_.end() - first);
  for (std::uint64_t n = first; n < slices_.end(); ++n) kept.push_back(slices_.at(n));
  return kept;
}

std::vector<CallRecord> Recorder::calls(std::size_t last) const {
  assert(loop_.isCurrent());
  std::vector<CallRecord> kept;
  const std::uint64_t first = calls_.end() - std::min<std::uint64_t>(last, calls_.end() - calls_.first());
  for (std::uint64_t n = first; n < calls_.end(); ++n) kept.push_back(calls_.at(n));
  return kept;
}

}  // namespace fairring
