#include "device/device_scheduler.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace fairring {

void DeviceScheduler::open(Exchange& rails) {
  rails_ = &rails;
  while (admitNext()) {
  }
}

void DeviceScheduler::begin(Call call) {
  calls_.push_back(std::make_shared<Pending>());
  calls_.back()->call = std::move(call);
}

void DeviceScheduler::add(std::shared_ptr<Slice> slice, std::uint64_t stagingBytes, bool last) {
  if (calls_.empty()) return;  // it has failed meanwhile
  const std::shared_ptr<Pending>& call = calls_.back();
  ++call->unfinished;
  call->cut = last;
  const std::uint64_t sequence = slice->id.sequence;
  const std::size_t onRails = slice->plan->size() - 2;
  assert(onRails > 0);
  slices_.emplace(
      sequence, UnderWay{.slice = std::move(slice), .call = call, .stagingBytes = stagingBytes, .unreleased = onRails});
  while (admitNext()) {
  }
}

bool DeviceScheduler::admitNext() {
  const auto next = slices_.find(admitted_);
  if (rails_ == nullptr || next == slices_.end()) return false;
  UnderWay& state = next->second;
  const std::uint64_t sequence = admitted_;
  if (sequence - slices_.begin()->first >= Gates::kLines) return false;
  if (!ring_.takeAt(sequence, state.slice->stagingOffset, state.stagingBytes)) return false;
  ++admitted_;
  state.admitted = true;
  gates_.open(sequence, 0);
  rails_->admit(std::shared_ptr(state.slice));
  advance(sequence);
  return true;
}

void DeviceScheduler::reached(std::uint64_t sequence, std::size_t step) {
  const auto found = slices_.find(sequence);
  if (found == slices_.end()) return;  // it has failed meanwhile
  UnderWay& state = found->second;
  state.reached = std::max(state.reached, step);
  if (step < stepsOf(state)) return advance(sequence);
  ++completed_;
  --state.call->unfinished;
  finish(std::shared_ptr(state.call));
  retireIfOver(sequence);
}

void DeviceScheduler::advance(std::uint64_t sequence) {
  const auto found = slices_.find(sequence);
  if (found == slices_.end() || rails_ == nullptr) return;
  UnderWay& state = found->second;
  if (!state.admitted || state.running || state.step + 1 >= stepsOf(state)) return;
  if (isFromDevice(*state.slice->plan, state.step) && state.reached < state.step) return;
  state.running = true;
  rails_->start(std::shared_ptr(state.slice), state.step,
                {[this, sequence] { onReady(sequence); }, [this, sequence] { onReleased(sequence); }});
}

void DeviceScheduler::onReady(std::uint64_t sequence) {
  UnderWay& state = slices_.at(sequence);
  state.running = false;
  if (isForDevice(*state.slice->plan, state.step)) gates_.open(sequence, state.step);
  ++state.step;
  if (onProgress) onProgress();
  advance(sequence);
}

void DeviceScheduler::onReleased(std::uint64_t sequence) {
  --slices_.at(sequence).unreleased;
  if (onProgress) onProgress();
  retireIfOver(sequence);
}

void DeviceScheduler::finish(const std::shared_ptr<Pending>& call) {
  if (!call->cut || call->unfinished > 0) return;
  std::erase(calls_, call);
  call->call.done({});
}

void DeviceScheduler::retireIfOver(std::uint64_t sequence) {
  const auto found = slices_.find(sequence);
  if (found == slices_.end() || found->second.unreleased > 0 || found->second.reached < stepsOf(found->second)) return;
  ring_.release(sequence);
  slices_.erase(found);
  while (admitNext()) {
  }
}

void DeviceScheduler::fail(const Error& error) {
  halt();
  words_->stop();
  slices_.clear();
  for (const auto& pending : std::exchange(calls_, {})) pending->call.done(error);
  gates_.openAll();  // last: who comes through finds the error
}

}  // namespace fairring
