#include "exchange/recorder.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <ranges>
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

void Recorder::submitted(CallRecord call) {
  assert(loop_.isCurrent());
  call.begun = time();
  if (calls_.size() == capacity_.calls) calls_.pop_front();
  calls_.push_back(std::move(call));
}

void Recorder::ended(std::uint64_t number, bool failed) {
  assert(loop_.isCurrent());
  const auto newest = calls_ | std::views::reverse;
  const auto found = std::ranges::find(newest, number, &CallRecord::number);
  if (found == newest.end()) return;  // so old that it is not kept
  found->ended = time();
  found->failed = failed;
}

void Recorder::add(const SliceRecord& record) {
  assert(loop_.isCurrent());
  if (slices_.empty()) slices_.reserve(capacity_.slices);
  if (slices_.size() < capacity_.slices) {
    slices_.push_back(record);
  } else {
    slices_[added_ % capacity_.slices] = record;
  }
  ++added_;
}

std::vector<SliceRecord> Recorder::slices() const {
  assert(loop_.isCurrent());
  std::vector<SliceRecord> kept;
  kept.reserve(slices_.size());
  for (std::uint64_t n = added_ - slices_.size(); n < added_; ++n) kept.push_back(slices_[n % capacity_.slices]);
  return kept;
}

}  // namespace fairring
